"""The world of loops that enforce rules on leases that run. They work on rows alone."""

from dataclasses import dataclass, field

from control_plane.domain.enforcement_rules import EnforcementRules
from reconciler.enforcement_rules import shipped_rules
from reconciler.world import World


@dataclass(frozen=True, kw_only=True)
class EnforcementWorld(World):
    enforcement_rules: EnforcementRules = field(default_factory=shipped_rules)
