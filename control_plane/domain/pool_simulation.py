"""Plays a trace of requests against policies of pools, and compares what waits with who waits.

Each pair of a SKU and a region is a pool. A request that finds a machine that is ready takes it, and it is not used
again; any other request waits for a machine of its own, for the whole lead time. A machine costs from its order on. The
newsvendor decides as the product does (`pool_sizing.py`), from what the trace showed until then, and is as patient
before it keeps fewer; a fixed pool orders a machine for each that is taken.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from control_plane.domain.money import NANO_PER_USD, NOTHING, Nano, accrued
from control_plane.domain.pool_idle import GUARD_PERCENT, rank
from control_plane.domain.pool_plan import LOWER_AFTER
from control_plane.domain.pool_sizing import Demand, Measured, demand

DECISIONS_MAX = 2_000
"""So often the newsvendor decides in a simulation, over all pools; it decides every minute in the product."""
DECIDE_EVERY_SECONDS = 60
FIXED_NUMBERS = (1, 2, 3, 5, 8, 12, 20, 30, 50)
WAITING_USD_PER_HOUR = (1, 2, 5, 10, 20, 50, 100, 200)
_EPOCH = datetime(2000, 1, 3, tzinfo=UTC)


class SimulatedPolicy(StrEnum):
    NONE = "none"
    FIXED = "fixed"
    NEWSVENDOR = "newsvendor"


@dataclass(frozen=True, slots=True)
class Costs:
    idle_nano_per_hour: Nano
    waiting_nano_per_hour: Nano
    lead_seconds: int
    machines_max: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy would have cost over all pools of a trace."""

    policy: SimulatedPolicy
    parameter: float | None
    """The number of machines of FIXED, or the USD that an hour of waiting counts as of NEWSVENDOR."""
    hits: int
    waits_seconds: tuple[int, ...]
    """Of each request, shortest first."""
    idle_seconds: int
    idle_nano: Nano
    idle_median_nano: Nano
    """Of a machine, from its order to its claim or its end."""
    idle_p90_nano: Nano
    waiting_nano: Nano
    """What the waits count as at the price of the simulation, whatever the policy assumed."""

    @property
    def mean_seconds(self) -> float:
        return sum(self.waits_seconds) / len(self.waits_seconds)

    @property
    def p95_seconds(self) -> int:
        return self.waits_seconds[min(len(self.waits_seconds) - 1, len(self.waits_seconds) * 95 // 100)]

    @property
    def total_nano(self) -> Nano:
        return Nano(self.idle_nano + self.waiting_nano)


@dataclass(frozen=True, slots=True)
class Comparison:
    policies: tuple[Outcome, ...]
    """No pool, the best fixed number, and the newsvendor at the price of waiting."""
    curve: tuple[Outcome, ...]


def compare(series: Sequence[Sequence[int]], costs: Costs) -> Comparison:
    """Play each series of requests, in seconds, against every policy."""
    traces = [sorted(each) for each in series]
    total_usd = costs.waiting_nano_per_hour / NANO_PER_USD
    none = _fixed(traces, 0, costs, SimulatedPolicy.NONE)
    numbers = [number for number in FIXED_NUMBERS if number <= costs.machines_max]
    fixed = [_fixed(traces, number, costs, SimulatedPolicy.FIXED) for number in numbers]
    measured = [_demands(trace, costs, sum(map(_span, traces))) for trace in traces]
    prices = sorted({*map(float, WAITING_USD_PER_HOUR), total_usd})
    vendor = {price: _newsvendor(traces, measured, price, costs) for price in prices}
    best = min(fixed, key=lambda outcome: outcome.total_nano, default=none)
    return Comparison((none, best, vendor[total_usd]), (none, *fixed, *vendor.values()))


@dataclass(slots=True)
class _Play:
    """A pool while its trace is played."""

    lead: int
    machines: list[int]
    """When each machine that nobody took was ordered, oldest first."""
    hits: int = 0
    idle_seconds: list[int] = field(default_factory=list[int])
    """Of each machine whose wait is over."""

    def request(self, at: int) -> int:
        """How long a request waits."""
        if self.machines and self.machines[0] + self.lead <= at:
            self.idle_seconds.append(at - self.machines.pop(0))
            self.hits += 1
            return 0
        return self.lead

    def keep(self, number: int, at: int, *, shrink: bool) -> None:
        while len(self.machines) < number:
            self.machines.append(at)
        while shrink and len(self.machines) > number:
            self.idle_seconds.append(at - self.machines.pop(0))

    def end(self, at: int) -> None:
        self.idle_seconds += [max(0, at - ordered) for ordered in self.machines]


def _fixed(traces: Sequence[Sequence[int]], number: int, costs: Costs, policy: SimulatedPolicy) -> Outcome:
    waits: list[int] = []
    plays = []
    for trace in traces:
        play = _Play(costs.lead_seconds, [trace[0] - costs.lead_seconds] * number)
        for at in trace:
            waits.append(play.request(at))
            play.keep(number, at, shrink=False)
        play.end(trace[-1])
        plays.append(play)
    return _outcome(policy, float(number) if policy is SimulatedPolicy.FIXED else None, waits, plays, costs)


def _span(trace: Sequence[int]) -> int:
    return trace[-1] - trace[0]


def _demands(trace: Sequence[int], costs: Costs, whole_seconds: int) -> list[tuple[int, Demand]]:
    """The demand as it was measured at each decision. What is wanted at any price follows from it."""
    step = max(DECIDE_EVERY_SECONDS, -(-whole_seconds // DECISIONS_MAX))
    arrivals = [_EPOCH + timedelta(seconds=at) for at in trace]
    measured = Measured(arrivals, [float(costs.lead_seconds)], arrivals[0])
    return [
        (at, demand(measured, now=_EPOCH + timedelta(seconds=at)))
        for at in range(trace[0], trace[-1] + 1, step)
    ]


def _newsvendor(
    traces: Sequence[Sequence[int]],
    demands: Sequence[Sequence[tuple[int, Demand]]],
    waiting_usd_per_hour: float,
    costs: Costs,
) -> Outcome:
    waiting = Nano(int(waiting_usd_per_hour * NANO_PER_USD))
    waits: list[int] = []
    plays = []
    for trace, decisions in zip(traces, demands, strict=True):
        play = _Play(costs.lead_seconds, [])
        target, fewer_since, following = 0, None, 0
        for at, measured in decisions:
            while following < len(trace) and trace[following] < at:
                waits.append(play.request(trace[following]))
                play.keep(target, trace[following], shrink=False)
                following += 1
            wanted = min(costs.machines_max, measured.size(waiting, costs.idle_nano_per_hour).wanted)
            if wanted >= target:
                target, fewer_since = wanted, None
            else:
                fewer_since = at if fewer_since is None else fewer_since
                if at - fewer_since >= LOWER_AFTER.total_seconds():
                    target = wanted
            play.keep(target, at, shrink=True)
        for at in trace[following:]:
            waits.append(play.request(at))
            play.keep(target, at, shrink=False)
        play.end(trace[-1])
        plays.append(play)
    return _outcome(SimulatedPolicy.NEWSVENDOR, waiting_usd_per_hour, waits, plays, costs)


def _outcome(
    policy: SimulatedPolicy,
    parameter: float | None,
    waits: Iterable[int],
    plays: Sequence[_Play],
    costs: Costs,
) -> Outcome:
    ordered = tuple(sorted(waits))
    lasted = sorted(seconds for play in plays for seconds in play.idle_seconds)
    idle = sum(lasted)
    return Outcome(
        policy=policy,
        parameter=parameter,
        hits=sum(play.hits for play in plays),
        waits_seconds=ordered,
        idle_seconds=idle,
        idle_nano=_cost(costs, idle),
        idle_median_nano=_cost(costs, lasted[rank(len(lasted), 50)] if lasted else 0),
        idle_p90_nano=_cost(costs, lasted[rank(len(lasted), GUARD_PERCENT)] if lasted else 0),
        waiting_nano=accrued(costs.waiting_nano_per_hour, sum(ordered)),
    )


def _cost(costs: Costs, seconds: int) -> Nano:
    return accrued(costs.idle_nano_per_hour, seconds) if seconds else NOTHING
