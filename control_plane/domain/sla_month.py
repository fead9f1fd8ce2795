"""What a calendar month came to for a lease with promises: how many were kept, and how long it was available."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.period import month_of
from control_plane.domain.sla import Terms
from control_plane.domain.sla_clock import Clocks, Facts, Month, Promise
from control_plane.domain.tariff import billing_start


@dataclass(frozen=True, slots=True)
class LeaseMonth:
    """A month of a lease, so far."""

    month: datetime
    promised_seconds: int
    """In which it was to be available."""
    down_seconds: int
    """In which it was not."""
    kept: int
    """How many of its promises were kept, so far."""
    broken: int


def months_of(facts: Facts, terms: Terms, judged: Clocks) -> Iterator[LeaseMonth]:
    """The months of a lease, the oldest first.

    The time until it is ready is promised for the month in which it was ready, and the other promises are made for each
    month in which it was ready for some time.
    """
    for month in judged.months:
        broken = {breach.promise for breach in judged.breaches if breach.month == month.month}
        kept = set(_promised(facts, terms, month)) - broken
        yield LeaseMonth(month.month, month.promised_seconds, month.down_seconds, len(kept), len(broken))


def _promised(facts: Facts, terms: Terms, month: Month) -> Iterator[Promise]:
    ready_at = None if facts.ready_at is None else billing_start(facts.ready_at)
    if terms.ready_seconds is not None and ready_at is not None and month_of(ready_at) == month.month:
        yield Promise.READY
    if not month.promised_seconds:
        return
    if terms.availability:
        yield Promise.AVAILABILITY
    if terms.replacement_seconds is not None:
        yield Promise.REPLACEMENT
    if terms.notice_seconds is not None:
        yield Promise.NOTICE
