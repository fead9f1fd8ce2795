"""The world of a process that runs every wing."""

from dataclasses import dataclass

from reconciler.worlds.audit import AuditWorld
from reconciler.worlds.clusters import ClusterWorld
from reconciler.worlds.health import HealthWorld
from reconciler.worlds.leases import LeaseWorld
from reconciler.worlds.machines import MachineWorld
from reconciler.worlds.requests import RequestWorld
from reconciler.worlds.rows import RowsWorld


@dataclass(frozen=True, kw_only=True)
class CompleteWorld(MachineWorld, LeaseWorld, ClusterWorld, RequestWorld, AuditWorld, HealthWorld, RowsWorld):
    """Everything that any loop may use."""
