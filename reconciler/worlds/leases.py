"""What loops need that place leases and let customers in."""

from dataclasses import dataclass

from reconciler.worlds.access import AccessWorld
from reconciler.worlds.mesh import MeshWorld


@dataclass(frozen=True, kw_only=True)
class LeaseWorld(AccessWorld, MeshWorld):
    """Machines, to install keys; the hub, to join the customer's network."""
