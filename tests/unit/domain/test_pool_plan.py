"""What a pool does next: its bounds, its budget, its patience, and which machines it orders and ends."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.machine import Machine, MachineState, Purpose
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.pool import PoolPolicy, PoolState
from control_plane.domain.pool_idle import IdleWait, idle_costs
from control_plane.domain.pool_plan import (
    AGE_MAX,
    ENDED_PER_LOOK_MAX,
    LOWER_AFTER,
    ORDER_AGAIN_FIRST,
    PoolFacts,
    PoolPlan,
    plan,
)
from control_plane.domain.pool_sizing import Sizing
from tests.support.clock import START
from tests.support.pools import a_pool
from tests.support.values import a_machine

POOL = a_pool(machines_max=10, step_max=3)


def a_sizing(wanted: int) -> Sizing:
    return Sizing(wanted, 0.9, 300.0, float(wanted), 48)


def waiting(*numbers: int, **other: Any) -> list[Machine]:
    return [a_machine(number, purpose=Purpose.POOL, pool_id=POOL.id, **other) for number in numbers]


def facts(wanted: int = 0, **other: Any) -> PoolFacts:
    values: dict[str, Any] = {
        "pool": POOL,
        "waiting": (),
        "unhealthy_accounts": frozenset(),
        "sizing": a_sizing(wanted),
        "idle_nano_per_hour": Nano(2 * NANO_PER_USD),
        "spent_today_nano": Nano(0),
        "failures": 0,
        "failed_at": None,
        "now": START,
    }
    return PoolFacts(**(values | other))


def test_a_pool_grows_by_its_step_and_orders_what_is_missing() -> None:
    planned = plan(facts(5))
    assert (planned.wanted, planned.target, planned.orders, planned.endings) == (5, 3, 3, ())
    grown = replace(POOL, target=3)
    assert plan(facts(5, pool=grown, waiting=waiting(1, 2, 3))).target == 5


@given(
    wanted=st.integers(0, 40),
    low=st.integers(0, 6),
    more=st.integers(0, 6),
    step=st.integers(1, 5),
    target=st.integers(0, 14),
    count=st.integers(0, 14),
    budget=st.integers(0, 300),
    spent=st.integers(0, 300),
)
def test_no_plan_leaves_the_bounds_of_its_pool(
    wanted: int, low: int, more: int, step: int, target: int, count: int, budget: int, spent: int
) -> None:
    pool = replace(
        POOL,
        machines_min=low,
        machines_max=low + more,
        step_max=step,
        target=target,
        idle_nano_per_day=Nano(budget * NANO_PER_USD),
    )
    machines = waiting(*range(1, count + 1))
    planned = plan(facts(wanted, pool=pool, waiting=machines, spent_today_nano=Nano(spent * NANO_PER_USD)))
    assert 0 <= planned.target <= pool.machines_max
    assert planned.target <= target + step
    assert planned.orders <= step
    assert len(planned.endings) <= step
    assert not (planned.orders and planned.endings)
    assert not planned.orders or count + planned.orders <= pool.machines_max
    assert count - len(planned.endings) >= min(count, planned.target)
    if spent >= budget:
        assert (planned.target, planned.orders) == (0, 0)
    assert planned.why.endswith(".")


def test_a_fixed_pool_keeps_its_minimum_whatever_demand_says() -> None:
    pool = replace(POOL, policy=PoolPolicy.FIXED, machines_min=2)
    assert plan(facts(9, pool=pool)).target == 2
    assert plan(facts(0, pool=replace(pool, target=2))).target == 2


def test_what_is_measured_once_holds_until_it_is_measured_again() -> None:
    pool = replace(POOL, wanted=3, wanted_why="Three came", target=3)
    planned = plan(facts(pool=pool, sizing=None, waiting=waiting(1)))
    assert (planned.wanted, planned.orders, planned.why) == (3, 2, "Three came.")


def shrinking(**other: Any) -> PoolPlan:
    pool = replace(POOL, **({"target": 4} | other))
    return plan(facts(1, pool=pool, waiting=waiting(1, 2, 3, 4)))


def test_a_pool_shrinks_only_after_fewer_were_enough_for_a_while_and_by_its_step() -> None:
    first = shrinking()
    assert (first.target, first.fewer_since, first.endings) == (4, START, ())
    still = shrinking(fewer_since=START - LOWER_AFTER + timedelta(seconds=1))
    assert (still.target, still.endings) == (4, ())
    over = shrinking(fewer_since=START - LOWER_AFTER)
    assert (over.target, len(over.endings)) == (1, 3)
    assert len(shrinking(fewer_since=START - LOWER_AFTER, step_max=1).endings) == 1


def test_demand_that_comes_back_starts_the_patience_anew() -> None:
    pool = replace(POOL, target=4, fewer_since=START - LOWER_AFTER)
    assert plan(facts(4, pool=pool, waiting=waiting(1, 2, 3, 4))).fewer_since is None
    flapping = [plan(facts(wanted, pool=replace(POOL, target=4))).target for wanted in (4, 3, 4, 3, 4, 3)]
    assert flapping == [4] * 6


def test_the_budget_of_the_day_bounds_even_the_minimum() -> None:
    """Two dollars an hour: half of the day is left, so 48 USD pay for two machines."""
    pool = replace(POOL, machines_min=5, idle_nano_per_day=Nano(48 * NANO_PER_USD))
    noon = START.replace(hour=12, minute=0, second=0, microsecond=0)
    planned = plan(facts(9, pool=pool, now=noon))
    assert planned.target == 2
    assert "The budget allows 2" in planned.why
    spent = plan(
        facts(
            9, pool=replace(pool, target=2), spent_today_nano=Nano(48 * NANO_PER_USD), waiting=waiting(1, 2)
        )
    )
    assert (spent.target, spent.orders, len(spent.endings)) == (0, 0, 2)


def test_a_budget_has_room_for_another_machine_only_if_a_dear_hour_fits_and_ends_none_that_waits() -> None:
    """48 USD for 12 hours: two machines at their price of 2 USD, and one at the 4 USD that rare hours cost."""
    costs = idle_costs(
        [*[IdleWait(3_600, Nano(2 * NANO_PER_USD))] * 8, *[IdleWait(3_600, Nano(4 * NANO_PER_USD))] * 2]
    )
    pool = replace(POOL, idle_nano_per_day=Nano(48 * NANO_PER_USD), idle_costs=costs)
    noon = START.replace(hour=12, minute=0, second=0, microsecond=0)
    planned = plan(facts(9, pool=pool, now=noon))
    assert planned.target == 1
    assert "The budget allows 1" in planned.why
    assert "an hour of waiting cost up to 4.00 USD lately" in planned.why
    kept = plan(facts(9, pool=replace(pool, target=2), now=noon, waiting=waiting(1, 2)))
    assert (kept.target, kept.orders, kept.endings) == (2, 0, ())
    few = replace(pool, idle_costs=idle_costs([IdleWait(3_600, Nano(40 * NANO_PER_USD))]))
    assert plan(facts(9, pool=few, now=noon)).target == 2, "one machine is no distribution"


def test_a_machine_that_the_budget_allowed_all_day_is_not_ended_shortly_before_midnight() -> None:
    pool = replace(POOL, target=1, idle_nano_per_day=Nano(48 * NANO_PER_USD))
    for minute in range(0, 60, 5):
        late = START.replace(hour=23, minute=minute, second=0, microsecond=0)
        spent = Nano((23 * 60 + minute) * 2 * NANO_PER_USD // 60)
        planned = plan(facts(1, pool=pool, now=late, spent_today_nano=spent, waiting=waiting(1)))
        assert (planned.target, planned.endings) == (1, ()), minute


@pytest.mark.parametrize(
    "lacking", [{"suspect_since": START}, {"missed_since": START}, {"down_since": START}]
)
def test_a_machine_that_cannot_be_claimed_now_is_not_counted_and_not_ended(lacking: dict[str, Any]) -> None:
    pool = replace(POOL, target=2)
    planned = plan(facts(2, pool=pool, waiting=[*waiting(1), *waiting(2, **lacking)]))
    assert (planned.orders, planned.endings) == (1, ())


def test_an_old_machine_is_replaced_first_and_ended_then() -> None:
    pool = replace(POOL, target=1)
    old = waiting(1, verified_at=START - AGE_MAX)
    assert (
        plan(facts(1, pool=pool, waiting=old)).orders,
        plan(facts(1, pool=pool, waiting=old)).endings,
    ) == (1, ())
    starting = waiting(2, state=MachineState.BOOTING, verified_at=None)
    waits = plan(facts(1, pool=pool, waiting=[*old, *starting]))
    assert (waits.orders, waits.endings) == (0, ())
    replaced = plan(facts(1, pool=pool, waiting=[*old, *waiting(2)]))
    assert [each.machine_id for each in replaced.endings] == [old[0].id]


def test_an_old_machine_of_a_full_pool_does_not_keep_its_successor_out() -> None:
    pool = replace(POOL, target=1, machines_max=1)
    assert plan(facts(1, pool=pool, waiting=waiting(1, verified_at=START - AGE_MAX))).orders == 1


def test_intents_are_dropped_before_machines_and_of_those_the_oldest_goes_first() -> None:
    pool = replace(POOL, target=0, step_max=1)
    intended = waiting(9, state=MachineState.INTENDED, asked_at=None, verified_at=None)
    old, young = waiting(1, asked_at=START - timedelta(hours=2)), waiting(2, asked_at=START)
    assert [
        each.machine_id for each in plan(facts(0, pool=pool, waiting=[*young, *old, *intended])).endings
    ] == [intended[0].id]
    assert [each.machine_id for each in plan(facts(0, pool=pool, waiting=[*young, *old])).endings] == [
        old[0].id
    ]


def test_nothing_is_ended_at_an_account_whose_lists_cannot_be_believed() -> None:
    frozen = frozenset({"fake"})
    for pool in (replace(POOL, target=0), replace(POOL, state=PoolState.DELETING)):
        assert plan(facts(0, pool=pool, waiting=waiting(1, 2), unhealthy_accounts=frozen)).endings == ()


def test_each_failure_makes_the_next_order_wait_longer() -> None:
    pool = replace(POOL, target=1)
    for failures, seconds in ((1, 30), (2, 60), (5, 480), (9, 900)):
        failed = {"failures": failures, "failed_at": START - timedelta(seconds=seconds - 1)}
        early = plan(facts(1, pool=pool, **failed))
        assert early.orders == 0, failures
        assert "failed within the hour" in early.why
        assert plan(facts(1, pool=pool, **failed, now=START + timedelta(seconds=1))).orders == 1, failures
    assert ORDER_AGAIN_FIRST.total_seconds() == 30


def test_a_deleted_pool_orders_nothing_and_ends_its_machines_some_at_a_time() -> None:
    pool = replace(POOL, state=PoolState.DELETING, target=9)
    planned = plan(facts(9, pool=pool, waiting=waiting(*range(1, 15))))
    assert (planned.orders, len(planned.endings)) == (0, ENDED_PER_LOOK_MAX)


def test_a_dry_run_has_the_same_plan() -> None:
    for wanted in (0, 3, 9):
        active = facts(wanted, pool=replace(POOL, target=2), waiting=waiting(1))
        assert plan(replace(active, pool=replace(active.pool, state=PoolState.DRY_RUN))) == plan(active)
