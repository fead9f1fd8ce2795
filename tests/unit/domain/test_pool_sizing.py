"""How many machines a pool wants: the newsvendor's rule, held against the costs that it is to balance."""

import itertools
import random
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.pool_sizing import (
    HISTORY,
    LEAD_SECONDS_MIN,
    LEAD_SECONDS_UNKNOWN,
    Measured,
    Sizing,
    critical_ratio,
    lead_times,
    size,
)
from tests.support.clock import START

LONG_AGO = START - 2 * HISTORY
USD = NANO_PER_USD


def sized(
    arrivals: list[datetime],
    *,
    waiting: int = 20,
    idle: int = 2,
    lead: float = 300.0,
    known_since: datetime = LONG_AGO,
    now: datetime = START,
) -> Sizing:
    measured = Measured(sorted(arrivals), [lead], known_since)
    return size(
        measured,
        waiting_nano_per_hour=Nano(waiting * USD),
        idle_nano_per_hour=Nano(idle * USD),
        now=now,
    )


def every(seconds: float, since: datetime, until: datetime) -> list[datetime]:
    count = int((until - since).total_seconds() / seconds)
    return [since + timedelta(seconds=seconds * number) for number in range(count)]


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_the_critical_ratio_is_a_probability_that_grows_with_the_cost_of_waiting(
    waiting: int, idle: int
) -> None:
    ratio = critical_ratio(Nano(waiting), Nano(idle))
    assert 0.0 <= ratio <= 1.0
    assert critical_ratio(Nano(waiting + 10**9), Nano(idle)) >= ratio
    assert critical_ratio(Nano(waiting), Nano(idle + 10**9)) <= ratio


def test_waiting_that_costs_nothing_wants_no_machine_and_idleness_that_costs_nothing_all_that_ever_came() -> (
    None
):
    arrivals = every(60, START - timedelta(hours=2), START)
    assert sized(arrivals, waiting=0).wanted == 0
    assert sized(arrivals, idle=0).wanted == 5
    assert sized([]).wanted == 0


def test_steady_demand_wants_what_comes_within_a_lead_time() -> None:
    arrivals = every(60, START - HISTORY, START)
    assert sized(arrivals, lead=300).wanted == 5
    assert sized(arrivals, lead=600).wanted == 10
    assert sized(arrivals, lead=300).mean == pytest.approx(5, abs=0.1)


@given(st.lists(st.integers(0, int(HISTORY.total_seconds())), max_size=60), st.integers(1, 40))
def test_dearer_waiting_never_wants_fewer_and_dearer_idleness_never_more(ages: list[int], usd: int) -> None:
    arrivals = [START - timedelta(seconds=age) for age in ages]
    wanted = sized(arrivals, waiting=usd).wanted
    assert sized(arrivals, waiting=usd + 5).wanted >= wanted
    assert sized(arrivals, waiting=usd, idle=7).wanted <= wanted
    assert 0 <= wanted <= len(arrivals)


def test_a_season_is_provided_for_before_it_begins() -> None:
    """Every day at noon ten requests come within five minutes, and else none. It is five minutes before noon."""
    noon = START.replace(hour=12, minute=0, second=0, microsecond=0)
    arrivals = [
        noon - timedelta(days=day) + timedelta(seconds=30 * number)
        for day in range(1, 8)
        for number in range(10)
    ]
    assert sized(arrivals, now=noon - timedelta(minutes=5), waiting=200).wanted == 10
    assert sized(arrivals, now=noon + timedelta(hours=6), waiting=200).wanted == 0


def test_a_burst_of_now_counts_although_the_days_before_were_quiet() -> None:
    arrivals = every(30, START - timedelta(hours=2), START)
    assert sized(arrivals).wanted == 10
    assert sized(arrivals, now=START + timedelta(hours=3)).wanted == 0


def test_time_of_which_nothing_is_known_is_no_time_without_requests() -> None:
    arrivals = every(60, START - timedelta(hours=1), START)
    known = sized(arrivals, known_since=START - timedelta(hours=1))
    assert known.mean == pytest.approx(5)
    assert sized(arrivals).mean < known.mean


def test_lead_times_are_the_measured_ones_in_quantiles_and_assumed_before_the_first() -> None:
    assert lead_times([]) == [timedelta(seconds=LEAD_SECONDS_UNKNOWN)]
    assert [lead.total_seconds() for lead in lead_times(range(100))] == [15, 30, 50, 70, 90]
    assert lead_times([0.1])[0].total_seconds() == LEAD_SECONDS_MIN


def cost_of(stock: int, demands: list[int], waiting: int, idle: int) -> int:
    """What a stock costs over these windows: what is left over is idle, what is missing waits."""
    return sum(idle * max(0, stock - demand) + waiting * max(0, demand - stock) for demand in demands)


@pytest.mark.parametrize(("waiting", "idle"), [(1, 1), (3, 1), (9, 1), (1, 4), (20, 2)])
def test_no_other_number_would_have_cost_less_over_the_windows_that_were_counted(
    waiting: int, idle: int
) -> None:
    """The claim of the newsvendor's rule itself, recomputed without it."""
    chance = random.Random(7)
    lead = 300
    since = START - timedelta(hours=2)
    arrivals = sorted(since + timedelta(seconds=chance.uniform(0, 7_200)) for _ in range(60))
    edges = [since + timedelta(seconds=lead * number) for number in range(25)]
    demands = [sum(a <= each < b for each in arrivals) for a, b in itertools.pairwise(edges)]
    wanted = sized(arrivals, waiting=waiting, idle=idle, lead=lead, known_since=since).wanted
    best = min(range(20), key=lambda stock: cost_of(stock, demands, waiting, idle))
    assert cost_of(wanted, demands, waiting, idle) == cost_of(best, demands, waiting, idle)
