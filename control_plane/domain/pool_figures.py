"""What a pool did for its customers, and what that cost: hit rate, idle cost, avoided wait, by the hour.

A request is a lease that the pool could have served by the words of the request, and a hit is one that claimed a
machine of it. A hit avoided the wait for a machine of its own: the median time from an order to a verified machine,
less what it waited. Machines are idle from their order to their claim or their end, and cost what their provider bills
for that time (`provider_cost.py`): the same amounts are the pool's line in the margins of the month.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.provider_cost import BillingTerms, MachineLife, cost_between

HOUR = timedelta(hours=1)
AGAIN = timedelta(hours=2)
"""Hours that began within this time are computed again, because leases of them may not have been ready yet."""
CAUGHT_UP_MAX = timedelta(hours=48)
"""After a longer outage of ours, older hours have no figures."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one hour that claimed a machine of the pool, or those that did not."""

    hour: datetime
    hit: bool
    requests: int
    ready: int
    """How many of them are ready by now."""
    waited_ms: int
    """How long those waited together."""


@dataclass(frozen=True, slots=True)
class IdleMachine:
    terms: BillingTerms
    life: MachineLife
    claimed_at: datetime | None

    def cost(self, since: datetime, until: datetime) -> Nano:
        """What its provider bills for the part of that time before its claim."""
        end = until if self.claimed_at is None else min(until, self.claimed_at)
        return cost_between(self.terms, self.life, since, end) if end > since else NOTHING


@dataclass(frozen=True, slots=True)
class PoolHour:
    """The figures of one hour."""

    hour: datetime
    requests: int = 0
    hits: int = 0
    ready_misses: int = 0
    """How many that did not claim a machine of the pool are ready."""
    waited_hits_ms: int = 0
    waited_misses_ms: int = 0
    avoided_ms: int = 0
    idle_nano: Nano = NOTHING


def hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def midnight_of(moment: datetime) -> datetime:
    """When the day (UTC) began whose budget counts at a moment in UTC."""
    return hour_of(moment).replace(hour=0)


def compute_since(measured_at: datetime | None, now: datetime) -> datetime:
    """The first hour whose figures are computed now."""
    last = now if measured_at is None else measured_at
    return hour_of(max(min(last, now) - AGAIN, now - CAUGHT_UP_MAX))


def by_hour(
    requests: Iterable[Requests],
    machines: Sequence[IdleMachine],
    *,
    lead_seconds: float,
    since: datetime,
    now: datetime,
) -> list[PoolHour]:
    """The figures of the hours from `since` to now. `lead_seconds` is what a machine takes from its order."""
    found = {(each.hour, each.hit): each for each in requests}
    hours = []
    hour = hour_of(since)
    while hour <= now:
        hits, misses = found.get((hour, True)), found.get((hour, False))
        idle = sum(machine.cost(hour, min(hour + HOUR, now)) for machine in machines)
        alone_ms = int(lead_seconds * 1_000) * (hits.ready if hits else 0)
        hours.append(
            PoolHour(
                hour=hour,
                requests=(hits.requests if hits else 0) + (misses.requests if misses else 0),
                hits=hits.requests if hits else 0,
                ready_misses=misses.ready if misses else 0,
                waited_hits_ms=hits.waited_ms if hits else 0,
                waited_misses_ms=misses.waited_ms if misses else 0,
                avoided_ms=max(0, alone_ms - (hits.waited_ms if hits else 0)),
                idle_nano=Nano(idle),
            )
        )
        hour += HOUR
    return hours


def together(hours: Iterable[PoolHour]) -> PoolHour | None:
    """The sum of some hours; None of none."""
    total: PoolHour | None = None
    for each in hours:
        if total is None:
            total = each
            continue
        total = PoolHour(
            hour=total.hour,
            requests=total.requests + each.requests,
            hits=total.hits + each.hits,
            ready_misses=total.ready_misses + each.ready_misses,
            waited_hits_ms=total.waited_hits_ms + each.waited_hits_ms,
            waited_misses_ms=total.waited_misses_ms + each.waited_misses_ms,
            avoided_ms=total.avoided_ms + each.avoided_ms,
            idle_nano=Nano(total.idle_nano + each.idle_nano),
        )
    return total
