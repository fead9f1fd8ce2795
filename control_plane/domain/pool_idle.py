"""What the machines of a pool cost while they waited, as it was measured: a distribution over those whose wait is over.

A machine waits from its order until a lease claims it or the pool lets it go. Its provider bills that time by its own
increments and minimum, so what an hour of waiting costs differs from machine to machine, and not by the price alone.

The newsvendor weighs expectations: one machine too many costs what it costs on average, because the expected cost of a
number of machines is a sum. So the mean belongs into the critical ratio (`pool_sizing.py`). A budget is no expectation:
it has to suffice on a dear day, too. It counts with what nine of ten hours of waiting cost at the most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.money import Nano
from control_plane.domain.pool_figures import IdleMachine

MEASURED_WITHIN = timedelta(days=7)
MEASURED_MAX = 200
"""So many machines are measured, those whose wait was over last."""
MEASURED_MIN = 10
"""With fewer, nothing is known about rare costs, and the price counts."""
GUARD_PERCENT = 90
"""Of hours, or of machines, that cost at most what a budget counts with."""
_HOUR_SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class IdleWait:
    """One machine whose wait is over."""

    seconds: int
    nano: Nano


@dataclass(frozen=True, slots=True)
class IdleCosts:
    """How machines differed in what their waits cost."""

    machines: int
    mean_nano: Nano
    """Of a machine."""
    median_nano: Nano
    p90_nano: Nano
    """Nine of ten machines cost at most so much."""
    mean_nano_per_hour: Nano
    """All costs by all hours."""
    p90_nano_per_hour: Nano
    """Nine of ten hours of waiting cost at most so much each."""

    @property
    def guard_nano_per_hour(self) -> Nano | None:
        """What a budget counts an hour of waiting as; None where too few machines were measured."""
        return self.p90_nano_per_hour if self.machines >= MEASURED_MIN else None


def wait_of(machine: IdleMachine) -> IdleWait | None:
    """The wait of a machine; None while it lasts, and of one that was never ordered or took no time."""
    life = machine.life
    ends = [at for at in (machine.claimed_at, life.ending_at, life.ended_at) if at is not None]
    if life.ordered_at is None or not ends:
        return None
    until = min(ends)
    seconds = _seconds(life.ordered_at, until)
    return IdleWait(seconds, machine.cost(life.ordered_at, until)) if seconds > 0 else None


def idle_costs(waits: Sequence[IdleWait]) -> IdleCosts | None:
    """The distribution of these waits, of which each has taken some time; None of none."""
    if not waits:
        return None
    costs = sorted(wait.nano for wait in waits)
    nano, seconds = sum(costs), sum(wait.seconds for wait in waits)
    return IdleCosts(
        machines=len(waits),
        mean_nano=Nano(nano // len(waits)),
        median_nano=costs[rank(len(costs), 50)],
        p90_nano=costs[rank(len(costs), GUARD_PERCENT)],
        mean_nano_per_hour=Nano(nano * _HOUR_SECONDS // seconds),
        p90_nano_per_hour=_dear_hour(waits, seconds),
    )


def rank(count: int, percent: int) -> int:
    """The place, from 0, of the smallest of so many sorted values that at least this share of them does not exceed."""
    return max(0, -(-percent * count // 100) - 1)


def _dear_hour(waits: Sequence[IdleWait], seconds: int) -> Nano:
    """The quantile over hours of waiting, not over machines: a long wait counts for as long as it was."""
    rates = sorted((wait.nano * _HOUR_SECONDS // wait.seconds, wait.seconds) for wait in waits)
    covered = 0
    for rate, lasted in rates:
        covered += lasted
        if 100 * covered >= GUARD_PERCENT * seconds:
            return Nano(rate)
    return Nano(rates[-1][0])


def _seconds(since: datetime, until: datetime) -> int:
    return int((until - since).total_seconds())
