"""From the journal's transitions to billable time.

A lease is billed in whole UTC seconds from the first full second after it was verified ready to
the last full second before the customer let go. Time is cut at full hours and at the end, and an
interval carries the GPU-seconds *before* it as well: a charge is the difference of two totals.

An interval of a running lease is only written through the last time the provider listed its
machine: we never bill a second for which there is no evidence, so a machine that is found dead
needs no correction.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

HOUR = timedelta(hours=1)
SILENT_AFTER = timedelta(hours=2)
"""A running lease whose meter stands still for longer raises an alarm."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Where a lease's meter stands."""

    ready_at: datetime
    gpu_count: int
    metered_until: datetime | None
    """End of the last interval, a whole second; None before the first."""
    intervals: int


@dataclass(frozen=True, slots=True)
class Interval:
    number: int
    """1, 2, 3 ... per lease. With the lease id it names the interval for ever."""
    started_at: datetime
    ended_at: datetime
    gpu_seconds_before: int
    gpu_seconds: int
    final: bool


def billing_start(ready_at: datetime) -> datetime:
    """The first whole second not before `ready_at`."""
    floor = ready_at.replace(microsecond=0)
    return floor if floor == ready_at else floor + timedelta(seconds=1)


def billing_end(ready_at: datetime, at: datetime) -> datetime:
    """The last whole second not after `at`, and never before the billing start."""
    return max(at.replace(microsecond=0), billing_start(ready_at))


def gpu_seconds_total(ready_at: datetime, gpu_count: int, at: datetime) -> int:
    """GPU-seconds from the billing start to `at`."""
    seconds = (billing_end(ready_at, at) - billing_start(ready_at)) // timedelta(seconds=1)
    return seconds * gpu_count


def next_hour(at: datetime) -> datetime:
    """The next full UTC hour strictly after `at`."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR


def due_intervals(meter: Meter, *, evidence_at: datetime, ended_at: datetime | None) -> Iterator[Interval]:
    """The intervals that can be closed now: full hours up to `evidence_at`, and the rest once the lease ended.

    `ended_at` is when the lease stopped being billed; None while it is ready.
    """
    start = billing_start(meter.ready_at)
    position = meter.metered_until or start
    number = meter.intervals
    stop = billing_end(meter.ready_at, ended_at if ended_at is not None else evidence_at)
    while (boundary := next_hour(position)) < stop or (boundary == stop and ended_at is None):
        number += 1
        yield _interval(meter, start, position, boundary, number, final=False)
        position = boundary
    if ended_at is not None:
        yield _interval(meter, start, position, max(position, stop), number + 1, final=True)


def _interval(
    meter: Meter, start: datetime, since: datetime, until: datetime, number: int, *, final: bool
) -> Interval:
    return Interval(
        number=number,
        started_at=since,
        ended_at=until,
        gpu_seconds_before=(since - start) // timedelta(seconds=1) * meter.gpu_count,
        gpu_seconds=(until - since) // timedelta(seconds=1) * meter.gpu_count,
        final=final,
    )
