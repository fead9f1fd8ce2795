"""How many machines a pool wants by its measured demand: the newsvendor's rule over the time that a new machine takes.

A machine that is ordered now is ready after the lead time, so what waits now has to serve the requests of that time.
One machine too many costs its idle price, one too few has a customer wait. The number that balances both is the
smallest one that suffices with the probability of the critical ratio, waiting / (waiting + idle), both in USD per hour.

The distribution of requests within a lead time is measured, not fitted, so bursts and seasons need no model: requests
are counted in windows as long as a lead time, those of the last two hours, and those of the coming hour on each of the
seven days before. Either half weighs as much as the other. Lead times are measured as well, and windows of five of
their quantiles take part equally.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.money import Nano

RECENT = timedelta(hours=2)
SEASON = timedelta(hours=1)
SEASON_DAYS = 7
HISTORY = timedelta(days=SEASON_DAYS) + RECENT
"""How far back requests matter."""
LEAD_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
LEAD_SECONDS_UNKNOWN = 600.0
"""The lead time that is assumed until a machine was measured."""
LEAD_SECONDS_MIN = 15.0
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known about the demand for a pool, and about the time that its machines take."""

    arrivals: Sequence[datetime]
    """When leases were requested that the pool could have served, of the last HISTORY, in the order of time."""
    lead_seconds: Sequence[float]
    """How long machines of the kind took from their order until they were verified, lately."""
    known_since: datetime
    """Since when requests are known. Before that no window begins."""


@dataclass(frozen=True, slots=True)
class Sizing:
    wanted: int
    critical_ratio: float
    lead_seconds: float
    """The median."""
    mean: float
    """How many requests come within a lead time on average, as weighted."""
    windows: int
    """How many windows were counted."""

    @property
    def why(self) -> str:
        suffices = "suffices" if self.wanted == 1 else "suffice"
        return (
            f"{self.mean:.2f} requests are expected within a lead time of {self.lead_seconds:.0f} s;"
            f" {self.wanted} {suffices} with a probability of {self.critical_ratio:.0%}"
        )


def critical_ratio(waiting_nano_per_hour: Nano, idle_nano_per_hour: Nano) -> float:
    """With which probability a machine shall be there for a request: from 0 to 1.

    Zero when waiting costs nothing, and one when idle machines cost nothing.
    """
    together = waiting_nano_per_hour + idle_nano_per_hour
    return 0.0 if waiting_nano_per_hour <= 0 else waiting_nano_per_hour / together


@dataclass(frozen=True, slots=True)
class Demand:
    """How many requests come within a lead time: how much each number weighs, as measured."""

    weights: Mapping[int, float]
    lead_seconds: float
    windows: int

    def size(self, waiting_nano_per_hour: Nano, idle_nano_per_hour: Nano) -> Sizing:
        """How many machines are wanted at these prices, and why."""
        ratio = critical_ratio(waiting_nano_per_hour, idle_nano_per_hour)
        mean = sum(count * weight for count, weight in self.weights.items())
        return Sizing(_quantile(self.weights, ratio), ratio, self.lead_seconds, mean, self.windows)


def size(
    measured: Measured, *, waiting_nano_per_hour: Nano, idle_nano_per_hour: Nano, now: datetime
) -> Sizing:
    """How many machines are wanted, and why."""
    return demand(measured, now=now).size(waiting_nano_per_hour, idle_nano_per_hour)


def demand(measured: Measured, *, now: datetime) -> Demand:
    """The distribution of the requests within a lead time."""
    leads = lead_times(measured.lead_seconds)
    counted = Counter(leads)
    weights: dict[int, float] = {}
    windows = 0
    for lead, times in counted.items():
        recent = list(_recent(measured, lead, now))
        season = list(_season(measured, lead, now))
        groups = [group for group in (recent, season) if group]
        for group in groups:
            share = times / (len(leads) * len(groups) * len(group))
            for count in group:
                weights[count] = weights.get(count, 0.0) + share
            windows += len(group)
    return Demand(weights, leads[len(leads) // 2].total_seconds(), windows)


def lead_times(lead_seconds: Sequence[float]) -> list[timedelta]:
    """The quantiles of the lead times, shortest first; the assumed one where none was measured."""
    known = sorted(lead_seconds)
    if not known:
        return [timedelta(seconds=LEAD_SECONDS_UNKNOWN)]
    return [
        timedelta(seconds=max(LEAD_SECONDS_MIN, known[min(len(known) - 1, int(share * len(known)))]))
        for share in LEAD_QUANTILES
    ]


def _recent(measured: Measured, lead: timedelta, now: datetime) -> Iterator[int]:
    begin = now - lead
    while begin >= max(now - RECENT, measured.known_since):
        yield _count(measured.arrivals, begin, begin + lead)
        begin -= lead


def _season(measured: Measured, lead: timedelta, now: datetime) -> Iterator[int]:
    for day in range(1, SEASON_DAYS + 1):
        begin = now - day * _DAY
        if begin < measured.known_since:
            return
        for number in range(max(1, math.ceil(SEASON / lead))):
            since = begin + number * lead
            yield _count(measured.arrivals, since, since + lead)


def _count(arrivals: Sequence[datetime], since: datetime, until: datetime) -> int:
    return bisect_left(arrivals, until) - bisect_left(arrivals, since)


def _quantile(weights: Mapping[int, float], ratio: float) -> int:
    """The smallest number that suffices with this probability; 0 without a window."""
    if ratio <= 0.0:
        return 0
    total = 0.0
    for count in sorted(weights):
        total += weights[count]
        if total >= ratio - 1e-9:
            return count
    return max(weights, default=0)
