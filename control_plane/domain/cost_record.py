"""A machine as finance reads it for a month: how it is billed, when it existed, who held it, and what was charged."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from control_plane.domain.ids import AccountName, LeaseId, MachineId, OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.provider_cost import BillingTerms, MachineLife, cost_between
from control_plane.domain.sla import SlaTier


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A lease's claim on a machine, whenever it was."""

    lease_id: LeaseId
    lease: str
    """The name of the lease."""
    organization_id: OrganizationId
    organization: str
    sku: str
    sla: SlaTier
    units: int
    """What its price counts: GPUs, or one machine where there are none."""
    slot: int | None
    """Which slot of the machine it holds; None when it holds all of it."""
    claimed_at: datetime
    admitted_at: datetime | None
    """When its customer could use the machine; None before."""
    ended_at: datetime | None
    switched_at: tuple[datetime, ...] = ()
    """When the lease was stopped, and started again, in turn."""

    def holds(self, since: datetime, until: datetime) -> bool:
        """Whether it holds the machine all the time from `since` to `until`."""
        return self.claimed_at <= since and (self.ended_at is None or self.ended_at >= until)


@dataclass(frozen=True, slots=True)
class Charged:
    """What a lease was charged for its use of a machine in a month."""

    lease_id: LeaseId
    amount_nano: Nano
    on_seconds: int
    stopped_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRecord:
    id: MachineId
    account: AccountName
    provider: str
    provider_ref: str | None
    gpu_count: int
    spot: bool
    pooled: bool
    """Whether it was ordered before a lease asked for it: for a warm pool, or as a spare of one lease."""
    pool_sla: SlaTier | None
    """The only service level that its pool serves, or that of the lease whose spare it is; None without one."""
    terms: BillingTerms
    life: MachineLife
    holders: tuple[Holder, ...]
    """In the order of time."""
    charged: tuple[Charged, ...]
    """Of the month alone."""

    @property
    def idle_until(self) -> datetime | None:
        """Until when it waited in a warm pool; None when no lease ever claimed it. Only of one that is pooled."""
        return self.holders[0].claimed_at if self.holders else None

    @property
    def idle_for(self) -> SlaTier | None:
        """For which service level it waited: the one that asked for it, or else that of the lease that claimed it."""
        if self.pool_sla is None and self.holders:
            return self.holders[0].sla
        return self.pool_sla

    def is_idle(self, since: datetime) -> bool:
        """Whether it waited in a warm pool during a stretch that begins at this moment."""
        return self.pooled and (self.idle_until is None or since < self.idle_until)

    def cost(self, since: datetime, until: datetime) -> Nano:
        """What its provider bills from `since` to `until`."""
        return cost_between(self.terms, self.life, since, until)

    def stretches(
        self, since: datetime, until: datetime
    ) -> Iterator[tuple[datetime, datetime, tuple[Holder, ...]]]:
        """The time from `since` to `until`, cut where a claim begins, is admitted or ends, with who holds it."""
        moments = {since, until}
        for holder in self.holders:
            moments |= {
                at
                for at in (holder.claimed_at, holder.admitted_at, holder.ended_at)
                if at is not None and since < at < until
            }
        for begin, end in pairwise(sorted(moments)):
            yield begin, end, tuple(holder for holder in self.holders if holder.holds(begin, end))
