"""What machines of a pool cost while they waited: measured by their providers' bills, as a distribution."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.pool_figures import IdleMachine
from control_plane.domain.pool_idle import MEASURED_MIN, IdleCosts, IdleWait, idle_costs, rank, wait_of
from control_plane.domain.pool_simulation import Costs, SimulatedPolicy, compare
from control_plane.domain.provider_cost import BillingTerms, MachineLife
from tests.support.clock import START

USD = NANO_PER_USD
HOUR = timedelta(hours=1)
BY_SECOND = BillingTerms(nano_per_hour=Nano(2 * USD), stopped_nano_per_hour=None)
BY_HOUR = replace(BY_SECOND, increment_seconds=3_600)


def machine(
    terms: BillingTerms, *, claimed: timedelta | None = None, ended: timedelta | None = None
) -> IdleMachine:
    life = MachineLife(
        ordered_at=START,
        running_at=START,
        ending_at=None if ended is None else START + ended,
        ended_at=None,
    )
    return IdleMachine(terms, life, None if claimed is None else START + claimed)


def waits(*hours_and_usd: tuple[float, float]) -> list[IdleWait]:
    return [IdleWait(int(hours * 3_600), Nano(int(usd * USD))) for hours, usd in hours_and_usd]


def test_a_wait_costs_what_its_provider_bills_until_the_claim_or_the_end() -> None:
    assert wait_of(machine(BY_SECOND, claimed=HOUR / 2)) == IdleWait(1_800, Nano(1 * USD))
    assert wait_of(machine(BY_HOUR, claimed=HOUR / 2)) == IdleWait(1_800, Nano(2 * USD)), "an hour was begun"
    assert wait_of(machine(BY_SECOND, ended=3 * HOUR)) == IdleWait(10_800, Nano(6 * USD))
    assert wait_of(machine(BY_SECOND, claimed=HOUR, ended=9 * HOUR)) == IdleWait(3_600, Nano(2 * USD))
    assert wait_of(machine(BY_SECOND)) is None, "it waits still"
    assert wait_of(machine(BY_SECOND, claimed=timedelta(0))) is None


def test_machines_and_hours_are_counted_by_hand() -> None:
    # Nine machines waited an hour for 2 USD, one waited 3 hours for 30 USD: 48 USD and 12 hours together.
    found = idle_costs(waits(*[(1, 2)] * 9, (3, 30)))
    assert found == IdleCosts(
        machines=10,
        mean_nano=Nano(int(4.8 * USD)),
        median_nano=Nano(2 * USD),
        p90_nano=Nano(2 * USD),
        mean_nano_per_hour=Nano(4 * USD),
        # The nine cheap hours are only three quarters of the time.
        p90_nano_per_hour=Nano(10 * USD),
    )
    assert idle_costs([]) is None


@pytest.mark.parametrize("machines", [MEASURED_MIN - 1, MEASURED_MIN])
def test_a_budget_counts_with_rare_costs_once_enough_machines_were_measured(machines: int) -> None:
    found = idle_costs(waits(*[(1, 2)] * machines))
    assert found is not None
    assert found.guard_nano_per_hour == (2 * USD if machines == MEASURED_MIN else None)


def test_the_rank_of_a_share_is_the_first_value_that_reaches_it() -> None:
    assert [rank(count, 50) for count in (1, 2, 3, 4)] == [0, 0, 1, 1]
    assert [rank(count, 90) for count in (1, 9, 10, 11, 20)] == [0, 8, 8, 9, 17]


def test_a_simulation_tells_how_machines_differ_in_what_they_cost() -> None:
    """One machine is kept, of a lead time of 300 s. It waits 300 s for the first of three requests at 0, 0 and 600 s; the
    second one finds none; the next machine waits 600 s for the third, and the last one is there when the trace ends.
    """
    costs = Costs(Nano(2 * USD), Nano(20 * USD), lead_seconds=300, machines_max=1)
    (fixed,) = [each for each in compare([[0, 0, 600]], costs).curve if each.policy is SimulatedPolicy.FIXED]
    assert (fixed.hits, fixed.idle_seconds, fixed.idle_nano) == (2, 900, USD // 2)
    assert (fixed.idle_median_nano, fixed.idle_p90_nano) == (166_666_667, 333_333_333)


@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 10**12)), min_size=1, max_size=30))
def test_nine_of_ten_machines_and_hours_cost_at_most_what_is_said(found: list[tuple[int, int]]) -> None:
    measured = [IdleWait(seconds, Nano(nano)) for seconds, nano in found]
    costs = idle_costs(measured)
    assert costs is not None
    within = sum(wait.nano <= costs.p90_nano for wait in measured)
    assert 10 * within >= 9 * len(measured)
    cheap = sum(
        wait.seconds for wait in measured if wait.nano * 3_600 // wait.seconds <= costs.p90_nano_per_hour
    )
    assert 10 * cheap >= 9 * sum(wait.seconds for wait in measured)
    assert min(wait.nano for wait in measured) <= costs.median_nano <= costs.p90_nano
