"""The world of loops that place leases and admit customers."""

from dataclasses import dataclass

from reconciler.worlds.access import AccessWorld
from reconciler.worlds.mesh import MeshWorld


@dataclass(frozen=True, kw_only=True)
class LeaseWorld(AccessWorld, MeshWorld):
    """Has access to machines, to install keys, and to the hub, to join the customer's network."""
