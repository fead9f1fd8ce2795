"""What a machine costs us by its provider's own rules: the terms it was ordered on, and the stretches of its life.

A provider bills a machine from its order, or from when it runs, until it has ended. The time of each uninterrupted run
is rounded up to the provider's increment and is at least its minimum; the time in which the machine is stopped is
billed at a price of its own, or as if it ran. What the provider prepays in blocks is booked where a block begins.

The cost of any time is the difference of two totals, so months and claims add up to the whole however time is cut. All
amounts are nano-USD; `docs/finance.md` says which provider bills how.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.money import NOTHING, Nano, accrued

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingTerms:
    """How a provider bills a machine, as its offer said when the machine was ordered."""

    nano_per_hour: Nano
    stopped_nano_per_hour: Nano | None
    """While it is stopped; None when that is billed as if it ran."""
    increment_seconds: int = 1
    """What a run is rounded up to."""
    minimum_seconds: int = 0
    """What a run is billed at least."""
    billed_while_booting: bool = True
    """Whether it is billed from its order on, or from when it runs."""


@dataclass(frozen=True, slots=True)
class Stop:
    since: datetime
    until: datetime | None
    """None when it was not started again."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """A lease's claim on a machine, with when the lease was stopped and started in turn."""

    claimed_at: datetime
    ended_at: datetime | None
    switched_at: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLife:
    """When a machine existed, as far as we know: providers tell none of these moments, so they are what we saw."""

    ordered_at: datetime | None
    """When its provider was asked for it; None before."""
    running_at: datetime | None
    """When we first saw it run; None before."""
    ending_at: datetime | None
    """When its provider took the request to end it, or its lists began to miss it; None before."""
    ended_at: datetime | None
    """When its provider showed its end; None before."""
    referenced: bool = True
    """Whether its provider's reference is known. An order that ended without one bought nothing; while it is open, its
    answer may be lost and a machine may be there."""
    stops: tuple[Stop, ...] = ()
    """In the order of time."""


def stops(tenures: Iterable[Tenure]) -> tuple[Stop, ...]:
    """When a machine was stopped, by the leases that held it one after the other.

    A machine whose claim ends while it is stopped stays so.
    """
    return tuple(sorted(_stops(tenures), key=lambda stop: stop.since))


def _stops(tenures: Iterable[Tenure]) -> Iterator[Stop]:
    for tenure in tenures:
        moments = tenure.switched_at
        for at, since in enumerate(moments[::2]):
            until = moments[2 * at + 1] if 2 * at + 1 < len(moments) else None
            if tenure.ended_at is not None:
                if since >= tenure.ended_at:
                    continue
                if until is not None and until >= tenure.ended_at:
                    until = None
            if until is not None and until <= tenure.claimed_at:
                continue
            yield Stop(max(since, tenure.claimed_at), until)


def cost_until(terms: BillingTerms, life: MachineLife, until: datetime) -> Nano:
    """What the machine costs from its order to `until`, the end not included. It never shrinks as `until` grows."""
    return _cost(terms, life.stops, _begin(terms, life), life.ended_at, until)


def cost_between(terms: BillingTerms, life: MachineLife, since: datetime, until: datetime) -> Nano:
    """What the machine costs from `since` to `until`, the end not included: the difference of two totals."""
    return Nano(cost_until(terms, life, max(since, until)) - cost_until(terms, life, since))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most that an amount may be."""

    least_nano: Nano
    most_nano: Nano

    @property
    def width_nano(self) -> Nano:
        return Nano(self.most_nano - self.least_nano)


def bounds_between(terms: BillingTerms, life: MachineLife, since: datetime, until: datetime) -> Bounds:
    """The least and the most that the machine may cost from `since` to `until`, as no provider tells when its bill
    begins and ends.

    It begins between the order and when we first saw the machine run, and ends between the provider's consent to end it
    and the list that shows its end.
    """
    begin = _begin(terms, life)
    earliest = (
        None if begin is None and life.ended_at is not None and not life.referenced else life.ordered_at
    )
    ending_at = life.ending_at or life.ended_at
    amounts = [
        cost_between(terms, life, since, until),
        *(
            Nano(
                _cost(terms, life.stops, *times, max(since, until)) - _cost(terms, life.stops, *times, since)
            )
            for times in ((earliest, life.ended_at), (begin if life.referenced else None, ending_at))
        ),
    ]
    return Bounds(min(amounts), max(amounts))


def _begin(terms: BillingTerms, life: MachineLife) -> datetime | None:
    """When its provider begins to bill it; None when it never did."""
    if not life.referenced and life.ended_at is not None:
        return None
    return life.ordered_at if terms.billed_while_booting else life.running_at


def _cost(
    terms: BillingTerms,
    stopped: Sequence[Stop],
    begin: datetime | None,
    ended_at: datetime | None,
    until: datetime,
) -> Nano:
    end = until if ended_at is None else min(until, ended_at)
    if begin is None or end <= begin:
        return NOTHING
    price, on_seconds, stopped_seconds, position = terms.stopped_nano_per_hour, 0, 0, begin
    for stop in stopped if price is not None else ():
        if stop.since >= end:
            break
        since = max(position, stop.since)
        on_seconds += _billed_seconds(terms, since - position)
        position = end if stop.until is None else max(since, min(end, stop.until))
        stopped_seconds += _rounded_up(position - since, 1)
    on_seconds += _billed_seconds(terms, end - position)
    return Nano(accrued(terms.nano_per_hour, on_seconds) + accrued(price or NOTHING, stopped_seconds))


def _billed_seconds(terms: BillingTerms, elapsed: timedelta) -> int:
    """The seconds that one run is billed."""
    if elapsed <= timedelta():
        return 0
    return max(terms.minimum_seconds, _rounded_up(elapsed, terms.increment_seconds))


def _rounded_up(elapsed: timedelta, seconds: int) -> int:
    return -(-elapsed // (seconds * _SECOND)) * seconds
