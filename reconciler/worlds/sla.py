"""The world of loops that judge promises and credit broken ones. They work on rows alone."""

from dataclasses import dataclass

from reconciler.world import World


@dataclass(frozen=True, kw_only=True)
class SlaWorld(World):
    sla_dry_run: bool = False
    """Whether credits for broken promises are only computed and reported, and not posted."""
