"""The world of loops that judge, look at and repair machines."""

from dataclasses import dataclass

from reconciler.worlds.access import AccessWorld


@dataclass(frozen=True, kw_only=True)
class HealthWorld(AccessWorld):
    """Reaches machines, to look at them."""
