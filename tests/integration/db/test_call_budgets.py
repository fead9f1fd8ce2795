"""Replicas draw the turns of their calls to providers from one row per limit."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from control_plane.db import call_budgets
from control_plane.db.engine import Database, Role
from control_plane.domain.call_budget import SLOWED, pace_of
from control_plane.domain.ids import AccountName
from providers.base import RateLimit, ToldLimit, Verb
from providers.pacing import Draw
from reconciler.call_budgets import SharedBudget
from tests.support.clock import START, Clock
from tests.support.database import login_url
from tests.support.rows import rows

pytestmark = pytest.mark.database
ACCOUNT = AccountName("emulated")


def draw_of(bucket: str, calls: int, seconds: float) -> Draw:
    limit = RateLimit(bucket, calls, seconds, frozenset(Verb))
    return Draw(ACCOUNT, limit, pace_of(calls=calls, seconds=seconds))


LAUNCH, EVERY, MINUTE = draw_of("launch", 1, 12.0), draw_of("every", 1, 1.0), draw_of("minute", 500, 60.0)


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    opened = Database(login_url(database_url, Role.RECONCILER), role=Role.RECONCILER, pool_size=6, readers=2)
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> Clock:
    return Clock(START)


async def wait(
    budget: SharedBudget, *draws: Draw, longest: float = 600, urgency: float = 1.0
) -> float | None:
    return await budget.draw(draws, urgency=urgency, wait_seconds_max=longest, idle_seconds_max=longest)


async def test_replicas_that_ask_at_once_are_spaced_out_over_one_line(db: Database, clock: Clock) -> None:
    waits = await asyncio.gather(*(wait(SharedBudget(db, clock.now), LAUNCH) for _ in range(5)))
    assert sorted(each for each in waits if each is not None) == pytest.approx([0, 12.6, 25.2, 37.8, 50.4])


async def test_the_wait_ends_with_the_moment_of_the_turn_however_long_asking_for_it_took(
    db: Database, clock: Clock
) -> None:
    def now() -> datetime:
        clock.advance(0.1)
        return clock.now()

    budget = SharedBudget(db, now)
    await wait(budget, EVERY)
    seconds = await wait(budget, EVERY)
    assert seconds is not None
    async with db.reading() as connection:
        (row,) = await rows(connection, text("SELECT free_at FROM call_budgets"))
    assert clock.now() + timedelta(seconds=seconds) == row.free_at - EVERY.pace.interval


async def test_a_turn_beyond_the_longest_wait_is_refused_and_takes_nothing(
    db: Database, clock: Clock
) -> None:
    budget = SharedBudget(db, clock.now)
    assert [await wait(budget, LAUNCH, longest=13) for _ in range(4)] == [0, pytest.approx(12.6), None, None]
    clock.advance(12.6)
    assert await wait(budget, LAUNCH, longest=13) == pytest.approx(12.6)


async def test_a_call_that_finds_no_turn_in_one_bucket_gives_its_turn_of_the_other_back(
    db: Database, clock: Clock
) -> None:
    budget = SharedBudget(db, clock.now)
    assert [await wait(budget, MINUTE), await wait(budget, LAUNCH)] == [0, 0]
    assert await wait(budget, MINUTE, LAUNCH, longest=1) is None
    interval = MINUTE.pace.interval.total_seconds()
    assert [await wait(budget, MINUTE) for _ in range(2)] == [
        pytest.approx(interval),
        pytest.approx(2 * interval),
    ]


async def test_a_call_that_waits_for_its_scarcest_bucket_draws_no_other_until_its_turn_is_near(
    db: Database, clock: Clock
) -> None:
    budget = SharedBudget(db, clock.now)
    assert await wait(budget, LAUNCH, EVERY) == 0
    assert await budget.draw([LAUNCH, EVERY], urgency=1.0, wait_seconds_max=15) is None
    assert await wait(budget, EVERY) == pytest.approx(1.15)
    clock.advance(LAUNCH.pace.interval.total_seconds() - 2)
    # Others stand in the line of the second bucket by now, and the call waits behind them.
    for _ in range(4):
        await wait(budget, EVERY)
    assert await budget.draw([LAUNCH, EVERY], urgency=1.0, wait_seconds_max=15) == pytest.approx(4.6)


async def test_calls_that_need_the_same_buckets_in_any_order_do_not_deadlock(
    db: Database, clock: Clock
) -> None:
    pairs = [(LAUNCH, EVERY), (EVERY, LAUNCH)] * 5
    waits = await asyncio.gather(*(wait(SharedBudget(db, clock.now), *pair) for pair in pairs))
    assert sorted(each for each in waits if each is not None) == pytest.approx(
        [12.6 * number for number in range(10)]
    )


async def test_most_calls_of_a_fast_limit_find_a_turn_in_their_process(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, lock = 0, call_budgets.lock

    async def counted(*args: object) -> object:
        nonlocal asked
        asked += 1
        return await lock(*args)  # type: ignore[arg-type] # what was given is handed on

    monkeypatch.setattr(call_budgets, "lock", counted)
    budget, waited_for_the_database = SharedBudget(db, clock.now), 0
    for _ in range(200):
        before = asked
        waited = await wait(budget, MINUTE)
        assert waited is not None
        waited_for_the_database += asked > before
        await clock.sleep(waited + 0.05)
        if drawing := [task for task in asyncio.all_tasks() if "_refill" in repr(task.get_coro())]:
            await asyncio.wait(drawing)
    assert waited_for_the_database == 1, (
        "only the first call asks, and the next turns are drawn while there are some"
    )
    assert asked < 200 / (MINUTE.pace.ahead - 1) + 2, "no turn is drawn and thrown away"


async def test_a_call_of_several_requests_takes_as_many_turns(db: Database, clock: Clock) -> None:
    budget, three = SharedBudget(db, clock.now), Draw(ACCOUNT, MINUTE.limit, MINUTE.pace, turns=3)
    await wait(budget, three)
    async with db.reading() as connection:
        (row,) = await call_budgets.listed(connection, limit=10)
    assert row.free_at - START == (3 + MINUTE.pace.ahead - 1) * MINUTE.pace.interval


async def test_three_processes_use_four_fifths_of_a_window_and_never_more_than_all_of_it(
    db: Database, clock: Clock
) -> None:
    budgets, moments = [SharedBudget(db, clock.now) for _ in range(3)], list[datetime]()
    free = [START] * 3
    while clock.now() < START + timedelta(minutes=3):
        number = free.index(min(free))
        clock.advance(max(0.0, (free[number] - clock.now()).total_seconds()))
        waited = await wait(budgets[number], MINUTE, longest=30)
        assert waited is not None
        free[number] = clock.now() + timedelta(seconds=waited)
        moments.append(free[number])
    moments.sort()
    for at, first in enumerate(moments):
        assert sum(each - first < timedelta(seconds=60) for each in moments[at : at + 520]) <= 500
    assert len(moments) >= 0.8 * 3 * 500


async def test_a_throttle_slows_every_replica_down_and_no_other_account(db: Database, clock: Clock) -> None:
    one, two = SharedBudget(db, clock.now), SharedBudget(db, clock.now)
    other = Draw(AccountName("other"), MINUTE.limit, MINUTE.pace)
    for budget in (one, two):
        await wait(budget, MINUTE)
    await one.slow(MINUTE, 30.0)
    assert await wait(one, MINUTE, longest=20) is None
    assert await wait(one, other, longest=20) == 0
    clock.advance(2)  # What the second had drawn before is used or lost by now.
    assert await wait(two, MINUTE, longest=20) is None
    async with db.reading() as connection:
        rows = {row.account: row for row in await call_budgets.listed(connection, limit=10)}
    assert rows[ACCOUNT].share_now(START) == SLOWED
    assert rows[AccountName("other")].share_now(START) == 1.0
    assert (rows[ACCOUNT].calls, rows[ACCOUNT].seconds, rows[ACCOUNT].burst) == (500, 60.0, None)


async def test_a_limit_that_the_provider_tells_is_kept_by_all(db: Database, clock: Clock) -> None:
    one, two = SharedBudget(db, clock.now), SharedBudget(db, clock.now)
    await one.learn(MINUTE, ToldLimit("minute", 250, 60.0, left=0, resets_seconds=40.0))
    assert await wait(two, MINUTE, longest=30) is None
    assert await wait(two, MINUTE, longest=50) == pytest.approx(40.0)
    async with db.reading() as connection:
        (row,) = await call_budgets.listed(connection, limit=10)
    assert row.share_now(clock.now()) == 0.5


async def test_time_that_nobody_used_is_not_saved_up_where_a_limit_has_no_burst(
    db: Database, clock: Clock
) -> None:
    budget = SharedBudget(db, clock.now)
    await wait(budget, LAUNCH)
    clock.advance(3_600)
    assert [await wait(budget, LAUNCH), await wait(budget, LAUNCH)] == [0, pytest.approx(12.6)]
