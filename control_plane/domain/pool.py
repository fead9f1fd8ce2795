"""A warm pool: verified machines of one SKU and region that wait for leases, so that these need not wait for them.

    DRY_RUN --enabled--> ACTIVE --deleted--> DELETING --emptied--> DELETED
        `------------------- deleted ----------^

A pool orders machines and ends surplus ones while it is ACTIVE. In DRY_RUN it decides the same and does nothing, so
that an operator sees first what a pool would do. A lease may claim its machines in both. A machine of a pool serves one
lease in its life: it is terminated after its claim, like one that was ordered for a lease.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from control_plane.domain.ids import PoolId
from control_plane.domain.money import Nano
from control_plane.domain.pool_idle import IdleCosts
from control_plane.domain.sku import region_within
from control_plane.domain.sla import SlaTier


class PoolState(StrEnum):
    DRY_RUN = "dry_run"
    """What it would do is decided and shown, and not done."""
    ACTIVE = "active"
    DELETING = "deleting"
    """It claims nothing for anybody any more, and its waiting machines are being terminated."""
    DELETED = "deleted"


LIVE = frozenset({PoolState.DRY_RUN, PoolState.ACTIVE})
"""States in which leases may claim the machines of a pool."""


class PoolPolicy(StrEnum):
    """How the number of its machines is decided."""

    FIXED = "fixed"
    """As many as its minimum."""
    NEWSVENDOR = "newsvendor"
    """From measured demand, boot times and costs (`pool_sizing.py`)."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as it is stored now."""

    id: PoolId
    name: str
    sku: str
    region: str
    """One of our regions, or a jurisdiction (`eu`) with all of its regions."""
    sla: SlaTier | None
    """The only service level whose leases it serves; None for all."""
    state: PoolState
    policy: PoolPolicy
    machines_min: int
    machines_max: int
    step_max: int
    """How many machines are ordered or ended in one look at the most."""
    idle_nano_per_day: Nano
    """What its waiting machines may cost in a day (UTC)."""
    waiting_nano_per_hour: Nano
    """What an hour in which a customer waits for a machine counts as."""
    generation: int
    created_at: datetime
    changed_at: datetime
    deleted_at: datetime | None
    wanted: int
    """How many machines its policy asked for last, before its bounds."""
    wanted_why: str | None
    """Why so many."""
    target: int
    """How many machines it keeps."""
    why: str | None
    """Why it keeps so many, or why it cannot; None before the first decision."""
    fewer_since: datetime | None
    """Since when its policy has asked for fewer than it keeps."""
    decided_at: datetime | None
    measured_at: datetime | None
    """When demand was measured last."""
    verified: int
    """How many of its machines could be claimed at the last look."""
    starting: int
    """How many were still set up."""
    idle_costs: IdleCosts | None
    """What its machines cost while they waited, lately; None before any wait was over."""

    def serves(self, region: str) -> bool:
        """Whether machines of a region of ours belong into it."""
        return region_within(region, self.region)
