"""Billable time, derived from the transitions in the journal.

A lease is billed in whole UTC seconds from the first full second after it was ready to the last full second
before it was released. Time is cut at full hours, at each stop and start of the machine, where the bill is paused and
resumed, and at the end; the time in which it is paused has no interval. An interval
carries the unit-seconds at its price *before* it as well: a charge is the difference of two totals.

`used_until` is the only rule for how long a lease has been used: the meter and the bill take the time that is
certain, and a hold covers the most that may still be billed. Time beyond `used_up_at` is not billed, so no charge
exceeds what was set aside for its lease (docs/decisions/0015).
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from control_plane.domain.money import Nano, affordable
from control_plane.domain.tariff import Tariff, billing_end, billing_start

HOUR = timedelta(hours=1)
EVIDENCE_LASTS = timedelta(minutes=1)
"""How long after a machine was listed it counts as running. Accounts are listed every two seconds."""
SILENT_AFTER = timedelta(hours=2)
"""A running lease whose meter stands still for longer raises an alarm."""


@dataclass(frozen=True, kw_only=True)
class Use(Tariff):
    """The stored facts about the use of a lease."""

    billed_until: datetime | None
    """When billing stopped; None while the lease is ready."""
    evidence_at: datetime | None
    """When the provider last listed the machine; None before the first time, and while it is a node that no pod can
    use yet."""
    suspect_since: datetime | None
    """When the machine became suspect because of its GPU proof; None while it is not."""
    unready_since: datetime | None = None
    """Since when the machine is a node that is not ready in its cluster; None while it is ready, and for others."""
    set_aside_nano: Nano
    """All that was set aside for the lease so far: its posted charges and its hold."""
    release_at: datetime | None
    """When the lease is released by itself; nothing is billed after that. None when it has no limit."""

    @property
    def used_up_at(self) -> datetime | None:
        """When all that was set aside is used up; None when it never is at the price of now."""
        return self.funded_until(self.set_aside_nano)


@dataclass(frozen=True, slots=True)
class UsedUntil:
    """How long a lease has been used, as two times."""

    certain: datetime
    """The customer had what was sold, and money set aside for it, at least until then: what the meter writes and the
    bill shows."""
    at_most: datetime
    """The customer has to pay until then if the hold is renewed: what the hold has to cover."""
    ended: bool
    """Whether billing has stopped. Both moments are then the same and no longer change."""


def used_until(use: Use, now: datetime) -> UsedUntil:
    """How long a lease has been used, as far as is known at `now`.

    A running lease is billed only through the last time the provider listed its machine, so that no correction is
    needed when the machine turns out to be dead. While the machine is suspect, billing stops at the moment it became
    suspect: either the machine is terminated and the time since then is free, or it is cleared and that time is
    billed later. Until this is decided, the hold covers it. The same holds for a node that is not ready.

    A lease that ran on after its hold was used up, because nobody renewed the hold, is billed through `used_up_at`.
    The rest is billed once the hold is renewed; it is free if the lease ends instead. Nothing is billed after
    `release_at`, even when the loop that ends the lease then comes late.
    """
    if use.billed_until is not None:
        return UsedUntil(use.billed_until, use.billed_until, ended=True)
    if use.paused_since is not None:
        return UsedUntil(use.paused_since, use.paused_since, ended=False)
    now = now if use.release_at is None else min(now, use.release_at)
    evidence_at = use.evidence_at or use.ready_at
    doubted_at = min(use.suspect_since or now, use.unready_since or now)
    certain = min(now, evidence_at, doubted_at, use.used_up_at or now)
    return UsedUntil(max(use.ready_at, certain), max(use.ready_at, now), ended=False)


@dataclass(frozen=True, slots=True)
class Meter:
    """How far a lease has been metered."""

    tariff: Tariff
    metered_until: datetime | None
    """End of the last interval, a whole second; None before the first."""
    intervals: int


@dataclass(frozen=True, slots=True)
class Interval:
    number: int
    """1, 2, 3 ... per lease. Together with the lease's id it identifies the interval permanently."""
    started_at: datetime
    ended_at: datetime
    unit_seconds_before: int
    """At the same price: on, or stopped."""
    unit_seconds: int
    final: bool
    stopped: bool = False
    """Whether the price of a stopped machine applies to it."""
    unused: bool = False
    """Whether it is the rest of a term that was committed to. It lies after the end of the use, and lasts no time."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A moment after which the use of a lease that ends is not billed, and why."""

    until: datetime
    why: str


def listed_bound(evidence_at: datetime) -> Bound:
    """The bound of a lease that its customer releases, and whose machine was last listed at `evidence_at`.

    When nobody could list the machine for longer, it may have ended long ago, and nobody finds out any more.
    """
    return Bound(evidence_at + EVIDENCE_LASTS, "the provider's last list that shows the machine was too old")


def unready_bound(unready_since: datetime) -> Bound:
    """The bound of a lease that ends while its node is not ready: waiting until it is given up costs no less."""
    return Bound(unready_since, "its node was not ready")


@dataclass(frozen=True, slots=True)
class Unbilled:
    """Time that a customer may have used and does not pay for."""

    seconds: int
    amount_nano: Nano
    why: str


@dataclass(frozen=True, slots=True)
class Ending:
    """When billing stops for a lease that ends."""

    billed_until: datetime
    unbilled: tuple[Unbilled, ...] = ()
    """The use that is not billed, one entry for each reason."""
    unused_unit_seconds: int = 0
    """What is billed of the rest of its term."""


def ending(
    tariff: Tariff,
    set_aside_nano: Nano,
    used_until: datetime,
    *bounds: Bound,
    released_at: datetime | None = None,
) -> Ending:
    """When billing stops for a lease that was used until `used_until`, and the use that is not billed.

    Besides the given bounds, the money that was set aside for the lease is one. When its customer released it, at
    `released_at`, the rest from then on of a term that was committed to is billed as well, as far as money was set
    aside.
    """
    funded = tariff.funded_until(set_aside_nano)
    if funded is not None:
        bounds = (*bounds, Bound(funded, "the money set aside for the lease was used up"))
    until, unbilled = used_until, list[Unbilled]()
    for bound in bounds:
        used_to, billed_to = (billing_end(tariff.ready_at, at) for at in (until, bound.until))
        seconds = (used_to - billed_to) // timedelta(seconds=1)
        if seconds > 0:
            used, billed = tariff.cost_until(until), tariff.cost_until(bound.until)
            unbilled.append(Unbilled(seconds, Nano(used - billed), bound.why))
            until = bound.until
    unused = 0 if released_at is None else tariff.unused_after(released_at)
    rest = _rest(tariff, set_aside_nano, until, unused)
    return Ending(until, tuple(unbilled), rest)


def _rest(tariff: Tariff, set_aside_nano: Nano, billed_until: datetime, unit_seconds: int) -> int:
    """What of so much unused time the money pays for that was set aside."""
    if not unit_seconds or not tariff.nano_per_unit_hour:
        return unit_seconds
    paid_for = affordable(tariff.nano_per_unit_hour, set_aside_nano)
    return max(0, min(unit_seconds, paid_for - tariff.unit_seconds_until(billed_until, stopped=False)))


def release_fee(tariff: Tariff, now: datetime) -> Nano:
    """What a customer pays at once who releases a ready lease now: the rest of its term; nothing without one."""
    return tariff.unused_cost(now, tariff.unused_after(now))


def next_hour(at: datetime) -> datetime:
    """The next full UTC hour strictly after `at`."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR


def due_intervals(meter: Meter, used: UsedUntil) -> Iterator[Interval]:
    """The intervals that can be closed now: full hours of certain use, cut where the price changes, and the rest once
    billing has stopped, with what is billed of an unused term after it. Time in which the bill was paused has none.
    """
    ready_at = meter.tariff.ready_at
    position = meter.metered_until or billing_start(ready_at)
    number = meter.intervals
    stop = billing_end(ready_at, used.certain)
    while (boundary := _next_cut(meter.tariff, position)) < stop or (boundary == stop and not used.ended):
        if not meter.tariff.is_paused(position):
            number += 1
            yield _interval(meter.tariff, position, boundary, number, final=False)
        position = boundary
    if used.ended:
        stop, rest = max(position, stop), meter.tariff.unused_unit_seconds
        yield _interval(meter.tariff, position, stop, number + 1, final=not rest)
        if rest:
            yield _unused(meter.tariff, stop, number + 2)


def _next_cut(tariff: Tariff, position: datetime) -> datetime:
    cuts = tariff.cuts
    passed = bisect_right(cuts, position)
    return min((next_hour(position), *cuts[passed : passed + 1]))


def _unused(tariff: Tariff, at: datetime, number: int) -> Interval:
    return Interval(
        number=number,
        started_at=at,
        ended_at=at,
        unit_seconds_before=tariff.unit_seconds_until(at, stopped=False),
        unit_seconds=tariff.unused_unit_seconds,
        final=True,
        unused=True,
    )


def _interval(tariff: Tariff, since: datetime, until: datetime, number: int, *, final: bool) -> Interval:
    stopped = tariff.is_stopped(since)
    seconds = 0 if tariff.is_paused(since) else (until - since) // timedelta(seconds=1)
    return Interval(
        number=number,
        started_at=since,
        ended_at=until,
        unit_seconds_before=tariff.unit_seconds_until(since, stopped=stopped),
        unit_seconds=seconds * tariff.units,
        final=final,
        stopped=stopped,
    )
