"""What happens to leases that are outside of an envelope while they live.

An envelope may be narrowed, the time of a burst may be over, the spend of the month may be used up. The leases that
are outside are then warned. They end only if the envelope says so, a grace after their warning. When nobody looked for
a while, because the loop was down, the grace begins anew: an outage of ours ends no lease.

A lease that was committed to for a term is only warned, and outside after all others. Its end would cost nothing, so an
envelope that its customer narrows would be a way out of the term.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain.decision import Action, Decision, Rule, decided
from control_plane.domain.envelope_rules import Applied, Wanted, exceeds, says, without
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import EnvironmentId, LeaseId, ProjectId
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind

UNWATCHED_AFTER = timedelta(minutes=10)
"""A warning that was last confirmed longer ago than this begins anew."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A live lease, with what an envelope limits of it."""

    id: LeaseId
    project_id: ProjectId
    environment_id: EnvironmentId
    sku: str
    tier: Tier
    purchase: PurchaseKind
    gpu_model: GpuModel | None
    gpu_count: int
    nano_per_hour: Nano
    region: str | None
    """Where its machine is; None while it has none."""
    provider: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Warned:
    """A lease's warning that it is outside of an envelope."""

    at: datetime
    confirmed_at: datetime
    """When the loop last saw that it still is."""


@dataclass(frozen=True, slots=True)
class _Outside:
    lease_id: LeaseId
    decision: Decision
    """What the envelope says of the lease, with at least one refusal."""

    @property
    def why(self) -> str:
        """The first refusal, as a sentence."""
        return next(spoken.why for spoken in self.decision.refusals if spoken.why is not None)


@dataclass(frozen=True, slots=True)
class Warn(_Outside):
    """Tell the customer, for the first time or anew."""

    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class StillOutside(_Outside):
    """It was warned, and its grace is not over, or there is none."""


@dataclass(frozen=True, slots=True)
class End(_Outside):
    """Its grace is over."""


@dataclass(frozen=True, slots=True)
class Clear:
    """The lease is within the envelope again, or no longer lives."""

    lease_id: LeaseId
    decision: Decision | None
    """What the envelope says of it now; None when it no longer lives."""


Step = Warn | StillOutside | End | Clear


def over_since(applied: Applied, now: datetime) -> datetime | None:
    """Since when a scope has been over a limit that a burst can exceed; None when it is not."""
    if not exceeds(applied):
        return None
    return applied.use.over_since or now


def watch(
    applied: Applied, leases: Sequence[Watched], warned: Mapping[LeaseId, Warned], now: datetime
) -> tuple[Step, ...]:
    """What to do about the live leases of an envelope's scope, those that were admitted last first.

    Leases end in this order, and each end is decided anew: where the first ones suffice, the others run on.
    """
    decisions = judged(applied, leases, now)
    kept = {lease.id for lease in leases if lease.purchase is PurchaseKind.COMMITTED}
    outside = {lease_id: decision for lease_id, decision in decisions.items() if not decision.admitted}
    ends_after = applied.envelope.ends_after_seconds
    grace = None if ends_after is None else timedelta(seconds=ends_after)
    steps: list[Step] = [
        _step(lease_id, decision, warned.get(lease_id), None if lease_id in kept else grace, now)
        for lease_id, decision in outside.items()
    ]
    steps += [Clear(each, decisions.get(each)) for each in sorted(warned.keys() - outside.keys())]
    return tuple(steps)


def _step(
    lease_id: LeaseId, decision: Decision, warned: Warned | None, grace: timedelta | None, now: datetime
) -> Step:
    if warned is None or now - warned.confirmed_at > UNWATCHED_AFTER:
        return Warn(lease_id, decision, None if grace is None else now + grace)
    if grace is not None and now >= warned.at + grace:
        return End(lease_id, decision)
    return StillOutside(lease_id, decision)


def judged(applied: Applied, leases: Sequence[Watched], now: datetime) -> dict[LeaseId, Decision]:
    """What an envelope says of each of its live leases. A lease whose decision refuses is outside.

    What is chosen wrongly is outside itself, and when the month is used up all leases are. Where too much is used at
    once, the leases that were admitted last are outside, as many as it takes for the others to be within, and those
    with a term after all others.
    """
    latest = sorted(leases, key=_outside_first, reverse=True)
    decisions = {lease.id: _held_against(applied, lease, now) for lease in latest}
    inside = [lease for lease in latest if not _outside_whatever_else_is_used(decisions[lease.id])]
    for lease in latest:
        if lease not in inside:
            applied = _without(applied, lease)
    for lease in inside:
        decision = _held_against(applied, lease, now)
        if decision.admitted:
            decisions[lease.id] = decision
        else:
            applied = _without(applied, lease)
    return decisions


def _outside_first(lease: Watched) -> tuple[bool, datetime, LeaseId]:
    """The order in which leases are outside, the highest first."""
    return lease.purchase is not PurchaseKind.COMMITTED, lease.created_at, lease.id


def _held_against(applied: Applied, lease: Watched, now: datetime) -> Decision:
    wanted = Wanted(
        sku=lease.sku,
        tier=lease.tier,
        purchase=lease.purchase,
        regions=() if lease.region is None else (lease.region,),
        providers=() if lease.provider is None else (lease.provider,),
        gpu_model=lease.gpu_model,
        takes_gpus=lease.gpu_count > 0,
        lives=True,
    )
    return decided(Action.LEASE_RUN, says(applied, wanted, now))


_AT_ONCE = frozenset({Rule.GPUS, Rule.GPUS_OF_MODEL, Rule.SPEND_PER_HOUR})
"""Limits on what is used at once, which other leases keep by ending."""


def _outside_whatever_else_is_used(decision: Decision) -> bool:
    return any(spoken.rule not in _AT_ONCE for spoken in decision.refusals)


def _without(applied: Applied, lease: Watched) -> Applied:
    use = without(applied.use, lease.gpu_model, lease.gpu_count, lease.nano_per_hour, NOTHING)
    return replace(applied, use=use)
