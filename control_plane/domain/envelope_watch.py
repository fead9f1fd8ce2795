"""What happens to leases that are outside of an envelope while they live.

An envelope may be narrowed, the time of a burst may be over, the spend of the month may be used up. The leases that
are outside are then warned. They end only if the envelope says so, a grace after their warning. When nobody looked for
a while, because the loop was down, the grace begins anew: an outage of ours ends no lease.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain.envelope import NAMES, Envelope
from control_plane.domain.envelope_rules import Applied, Use, burst_left, exceeds
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import LeaseId
from control_plane.domain.money import Nano, dollars_down, dollars_up
from control_plane.domain.proof import Tier

UNWATCHED_AFTER = timedelta(minutes=10)
"""A warning that was last confirmed longer ago than this begins anew."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A live lease, with what an envelope limits of it."""

    id: LeaseId
    sku: str
    tier: Tier
    gpu_model: GpuModel
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
class Warn:
    """Tell the customer, for the first time or anew."""

    lease_id: LeaseId
    why: str
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class StillOutside:
    lease_id: LeaseId


@dataclass(frozen=True, slots=True)
class End:
    lease_id: LeaseId
    why: str


@dataclass(frozen=True, slots=True)
class Clear:
    """The lease is within the envelope again."""

    lease_id: LeaseId


Step = Warn | StillOutside | End | Clear


def over_since(applied: Applied, now: datetime) -> datetime | None:
    """Since when a scope has been over a limit that a burst can exceed; None when it is not."""
    if not exceeds(applied):
        return None
    return applied.use.over_since or now


def watch(
    applied: Applied, leases: Sequence[Watched], warned: Mapping[LeaseId, Warned], now: datetime
) -> tuple[Step, ...]:
    """What to do about the live leases of an envelope's scope, in the order of their ids."""
    outside = outsiders(applied, leases, now)
    ends_after = applied.envelope.ends_after_seconds
    grace = None if ends_after is None else timedelta(seconds=ends_after)
    steps: list[Step] = [
        _step(lease_id, why, warned.get(lease_id), grace, now) for lease_id, why in sorted(outside.items())
    ]
    steps += [Clear(lease_id) for lease_id in sorted(warned.keys() - outside.keys())]
    return tuple(steps)


def _step(lease_id: LeaseId, why: str, warned: Warned | None, grace: timedelta | None, now: datetime) -> Step:
    if warned is None or now - warned.confirmed_at > UNWATCHED_AFTER:
        ends_at = None if grace is None else now + grace
        return Warn(lease_id, why, ends_at)
    if grace is not None and now >= warned.at + grace:
        return End(lease_id, why)
    return StillOutside(lease_id)


def outsiders(applied: Applied, leases: Sequence[Watched], now: datetime) -> dict[LeaseId, str]:
    """The leases that are outside of an envelope, each with the reason as a sentence.

    What is chosen wrongly is outside itself. Where too much is used, the leases that were admitted last are outside,
    as many as it takes for the others to be within.
    """
    found = {lease.id: why for lease in leases if (why := _excluded(applied, lease)) is not None}
    month = _month_used_up(applied)
    if month is not None:
        return {lease.id: found.get(lease.id, month) for lease in leases}
    allowed = _allowed(applied, now)
    use = applied.use
    latest = sorted(leases, key=lambda lease: (lease.created_at, lease.id), reverse=True)
    for lease in [lease for lease in latest if lease.id in found]:
        use = _without(use, lease)
    for lease in [lease for lease in latest if lease.id not in found]:
        why = _too_much(allowed, use, lease, applied)
        if why is not None:
            found[lease.id] = why
            use = _without(use, lease)
    return found


def _excluded(applied: Applied, lease: Watched) -> str | None:
    envelope, name = applied.envelope, NAMES[applied.level].capitalize()
    if not envelope.allows_sku(lease.sku):
        return f"{name} does not allow the SKU {lease.sku}."
    if not envelope.allows_tier(lease.tier):
        return f"{name} does not allow the proof tier {lease.tier}."
    if lease.region is not None and not envelope.allows_region(lease.region):
        return f"{name} does not allow the region {lease.region}."
    if lease.provider is not None and not envelope.allows_provider(lease.provider):
        return f"{name} does not allow the provider {lease.provider}."
    return None


def _month_used_up(applied: Applied) -> str | None:
    limit = applied.envelope.spend_nano_per_month
    if limit is None or applied.use.month_nano <= limit:
        return None
    return (
        f"{dollars_up(applied.use.month_nano)} USD are charged or held in this calendar month, and the limit of"
        f" {NAMES[applied.level]} is {dollars_down(limit)} USD."
    )


def _allowed(applied: Applied, now: datetime) -> Envelope:
    """The limits that hold now: stretched while a burst has time left."""
    envelope, burst = applied.envelope, burst_left(applied, now)
    if burst is None:
        return envelope
    spend = envelope.spend_nano_per_hour
    return replace(
        envelope,
        gpus=None if envelope.gpus is None else burst.stretched(envelope.gpus),
        gpus_of_model={model: burst.stretched(limit) for model, limit in envelope.gpus_of_model.items()},
        spend_nano_per_hour=None if spend is None else Nano(burst.stretched(spend)),
    )


def _too_much(allowed: Envelope, use: Use, lease: Watched, applied: Applied) -> str | None:
    """Why this lease has to go for the others to be within; None when it may stay."""
    name = NAMES[applied.level]
    if allowed.gpus is not None and use.gpus > allowed.gpus:
        return f"{applied.use.gpus} GPUs are held, and the limit of {name} is {allowed.gpus}."
    of_model, limit = use.gpus_of_model.get(lease.gpu_model, 0), allowed.gpus_of_model.get(lease.gpu_model)
    if limit is not None and of_model > limit:
        held = applied.use.gpus_of_model.get(lease.gpu_model, 0)
        return f"{held} {lease.gpu_model} GPUs are held, and the limit of {name} is {limit}."
    spend = allowed.spend_nano_per_hour
    if spend is not None and use.nano_per_hour > spend:
        return (
            f"All leases together cost {dollars_up(applied.use.nano_per_hour)} USD per hour, and the limit of {name} is"
            f" {dollars_down(spend)} USD."
        )
    return None


def _without(use: Use, lease: Watched) -> Use:
    left = dict(use.gpus_of_model)
    left[lease.gpu_model] = max(0, left.get(lease.gpu_model, 0) - lease.gpu_count)
    return replace(use, gpus_of_model=left, nano_per_hour=Nano(use.nano_per_hour - lease.nano_per_hour))
