"""What a machine costs us, by the terms of its provider."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.money import Nano
from control_plane.domain.provider_cost import (
    BillingTerms,
    Bounds,
    MachineLife,
    Stop,
    Tenure,
    bounds_between,
    cost_between,
    cost_until,
    stops,
)
from tests.support.clock import START

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
PRICE, STOPPED = Nano(3_600_000_000), Nano(360_000_000)
"""A millionth of a dollar for a thousandth of a second, and a tenth of that."""
BY_SECOND = BillingTerms(nano_per_hour=PRICE, stopped_nano_per_hour=STOPPED)
LIFE = MachineLife(
    ordered_at=START, running_at=START + 5 * MINUTE, ending_at=START + HOUR, ended_at=START + HOUR + MINUTE
)


def _seconds(terms: BillingTerms, life: MachineLife, until: datetime) -> float:
    return cost_until(terms, life, until) / 1_000_000


def test_a_machine_is_billed_from_its_order_to_the_evidence_of_its_end() -> None:
    assert _seconds(BY_SECOND, LIFE, START - HOUR) == 0
    assert _seconds(BY_SECOND, LIFE, START) == 0
    assert _seconds(BY_SECOND, LIFE, START + 90 * SECOND) == 90
    assert _seconds(BY_SECOND, LIFE, START + 9 * HOUR) == 61 * 60


def test_a_provider_that_bills_running_machines_bills_no_boot() -> None:
    terms = replace(BY_SECOND, billed_while_booting=False)
    assert _seconds(terms, LIFE, START + 5 * MINUTE) == 0
    assert _seconds(terms, LIFE, START + 9 * HOUR) == 56 * 60
    assert _seconds(terms, replace(LIFE, running_at=None), START + 9 * HOUR) == 0, "it never ran"


def test_a_block_is_billed_when_it_begins_and_is_booked_in_that_month() -> None:
    terms = replace(BY_SECOND, increment_seconds=600)
    assert _seconds(terms, LIFE, START + SECOND / 2) == 600
    assert _seconds(terms, LIFE, START + 10 * MINUTE) == 600
    assert _seconds(terms, LIFE, START + 10 * MINUTE + SECOND) == 1_200
    assert cost_between(terms, LIFE, START + 10 * MINUTE - SECOND, START + 10 * MINUTE) == 0
    assert _seconds(terms, LIFE, START + 9 * HOUR) == 7 * 600, "61 minutes"


def test_each_run_is_billed_for_the_minimum() -> None:
    terms = replace(BY_SECOND, minimum_seconds=60)
    life = replace(LIFE, stops=(Stop(START + 10 * SECOND, START + MINUTE),))
    assert _seconds(terms, life, START + SECOND) == 60
    assert _seconds(terms, life, START + MINUTE) == 60 + 50 / 10
    assert _seconds(terms, life, START + MINUTE + SECOND) == 60 + 50 / 10 + 60


def test_a_stopped_machine_has_a_price_of_its_own_where_its_provider_has_one() -> None:
    life = replace(
        LIFE, stops=(Stop(START + 10 * MINUTE, START + 20 * MINUTE), Stop(START + 30 * MINUTE, None))
    )
    assert _seconds(BY_SECOND, life, START + 9 * HOUR) == 20 * 60 + (10 + 31) * 6
    as_if_it_ran = replace(BY_SECOND, stopped_nano_per_hour=None)
    assert _seconds(as_if_it_ran, life, START + 9 * HOUR) == 61 * 60
    assert _seconds(replace(BY_SECOND, stopped_nano_per_hour=Nano(0)), life, START + 9 * HOUR) == 20 * 60


def test_an_order_that_came_to_nothing_costs_nothing_but_one_without_an_answer_may_cost() -> None:
    lost = replace(LIFE, running_at=None, ending_at=None, ended_at=None, referenced=False)
    assert _seconds(BY_SECOND, lost, START + HOUR) == 3_600
    assert bounds_between(BY_SECOND, lost, START, START + HOUR) == Bounds(Nano(0), PRICE)
    nothing = replace(lost, ended_at=START + HOUR)
    assert bounds_between(BY_SECOND, nothing, START, START + 2 * HOUR) == Bounds(Nano(0), Nano(0))
    assert cost_until(BY_SECOND, nothing, START + 2 * HOUR) == 0


def test_the_bounds_say_what_nobody_tells_us() -> None:
    terms = replace(BY_SECOND, billed_while_booting=False)
    bounds = bounds_between(terms, LIFE, START, START + 9 * HOUR)
    assert bounds == Bounds(Nano(55 * 60_000_000), Nano(61 * 60_000_000))
    assert bounds.width_nano == 6 * 60_000_000, "five minutes of boot, and one until its end was shown"


def test_stops_are_those_of_the_leases_that_held_the_machine() -> None:
    at = [START + hours * HOUR for hours in range(10)]
    moved = Tenure(at[2], at[5], (at[0], at[1], at[1], at[3], at[4], at[6]))
    assert stops([moved]) == (Stop(at[2], at[3]), Stop(at[4], None)), (
        "what was before and after is of other machines"
    )
    assert stops([Tenure(at[0], None, (at[1],)), Tenure(at[0], None)]) == (Stop(at[1], None),)
    assert stops([Tenure(at[0], at[1], (at[2], at[3]))]) == ()


@st.composite
def machines(draw: st.DrawFn) -> tuple[BillingTerms, MachineLife]:
    moments = sorted(draw(st.lists(st.integers(0, 10**10), min_size=8, max_size=8)))
    at = [START + timedelta(microseconds=moment) for moment in moments]
    terms = BillingTerms(
        nano_per_hour=Nano(draw(st.integers(0, 10**12))),
        stopped_nano_per_hour=draw(st.none() | st.integers(0, 10**12).map(Nano)),
        increment_seconds=draw(st.sampled_from([1, 60, 600, 3_600])),
        minimum_seconds=draw(st.sampled_from([0, 60, 3_600])),
        billed_while_booting=draw(st.booleans()),
    )
    life = MachineLife(
        ordered_at=at[0],
        running_at=draw(st.sampled_from([None, at[1]])),
        ending_at=draw(st.sampled_from([None, at[6]])),
        ended_at=draw(st.sampled_from([None, at[7]])),
        referenced=draw(st.booleans()),
        stops=(Stop(at[2], at[3]), Stop(at[4], draw(st.sampled_from([None, at[5]])))),
    )
    return terms, life


@given(machines(), st.lists(st.integers(-(10**9), 2 * 10**10), min_size=2, max_size=8))
def test_however_time_is_cut_the_parts_add_up_and_no_part_is_negative(
    machine: tuple[BillingTerms, MachineLife], cuts: list[int]
) -> None:
    terms, life = machine
    moments = [START + timedelta(microseconds=cut) for cut in sorted(cuts)]
    parts = [cost_between(terms, life, since, until) for since, until in pairwise(moments)]
    assert sum(parts) == cost_between(terms, life, moments[0], moments[-1])
    assert min(parts) >= 0
    bounds = bounds_between(terms, life, moments[0], moments[-1])
    assert bounds.least_nano <= sum(parts) <= bounds.most_nano
