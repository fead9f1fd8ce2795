"""The runner in real time: what a stage, which plays loop after loop, cannot show."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from types import ModuleType
from typing import Any, cast

import asyncpg
import pytest
import structlog
from prometheus_client import REGISTRY
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from control_plane.db import loops as loop_reports
from control_plane.db.connection import Connection
from control_plane.db.engine import Database, Role
from control_plane.db.listen import Listener
from control_plane.domain.ids import AccountName
from control_plane.domain.request import CapacityRequest
from control_plane.world import utc_now, uuid7
from providers.faults import Fault
from reconciler import registry
from reconciler import runner as runner_module
from reconciler.loop import LASTS, AccountLoop, Event, Loop, Report, each
from reconciler.proving import CHALLENGE_SECONDS_MAX
from reconciler.runner import REPORT_EVERY, Runner, late_after
from reconciler.world import World
from tests.support.cases import case
from tests.support.challenger import PASSED, Answer
from tests.support.clock import Clock, WallClock
from tests.support.database import login_url
from tests.support.listening import until
from tests.support.rows import rows
from tests.support.stage import FAKE, set_stage

pytestmark = pytest.mark.database

SECONDS_MAX = 20.0
HEALTHY = AccountName("fake/healthy")


def test_a_healthy_loop_is_never_reported_as_stuck() -> None:
    """Its longest silence: a report was just not due, the turn after it comes, and that one takes its time."""
    for name, loop in registry.discovered().items():
        assert REPORT_EVERY + loop.every + loop.lasts < late_after(loop), name


def test_a_loop_that_waits_for_machines_may_take_as_long_as_a_challenge() -> None:
    loops = registry.discovered()
    assert {name for name, loop in loops.items() if loop.lasts > LASTS} == {
        "admit_customers",
        "apply_firewalls",  # Waits for machines, as does the next one.
        "repair_links",
        "apply_provider_firewalls",  # Waits for providers.
        "answer_account_requests",  # Waits for providers to list machines, as does the next one.
        "read_planned_work",
        "audit_ledger",  # Waits for no machine, but adds up all postings there are.
        "reconcile_periods",  # Likewise, but reads a month of a hundred customers.
        "bootstrap_machines",
        "build_clusters",  # Waits for a server host, as does the next one.
        "dismantle_clusters",
        "keep_kubeconfigs",  # Waits for API servers of clusters, as does the next one.
        "keep_tenants",
        "join_nodes",  # Waits for machines and API servers, as do the next three.
        "leave_nodes",
        "sync_overlay",
        "watch_nodes",
        "check_tunnels",  # Waits for machines, as does the next one.
        "rotate_node_keys",
        "change_power",  # Waits for machines and providers.
        "read_consoles",  # Likewise.
        "challenge_machines",
        "erase_machines",
        "scale_clusters",  # Waits for API servers of clusters.
        "export_audit",  # Waits for the bucket, as do the next two.
        "prune_audit",
        "archive_samples",
        "rotate_keys",  # Waits for the key manager.
        "sweep_children",  # Waits for providers to list what they keep.
    }
    assert loops["challenge_machines"].lasts >= timedelta(seconds=CHALLENGE_SECONDS_MAX)


async def test_a_process_that_stops_in_order_takes_its_reports_back_and_the_loops_stay_known(
    db: Database,
) -> None:
    stage = await set_stage(db, WallClock())

    async def reported() -> set[str]:
        async with db.reading() as connection:
            return {report.loop for report in await loop_reports.reports(connection)}

    chosen = registry.discovered(["money"])
    runner = Runner(stage.world, chosen.values())
    running = asyncio.create_task(runner.run())
    async with asyncio.timeout(SECONDS_MAX):
        while await reported() != set(chosen):  # noqa: ASYNC110 - a row has no event to wait for
            await asyncio.sleep(0.05)
    runner.stop()
    await asyncio.wait_for(running, timeout=SECONDS_MAX)
    assert await reported() == set()
    async with db.reading() as connection:
        missing = {line.loop for line in await loop_reports.missing(connection)}
    assert missing == set(registry.discovered()), "nobody runs any of them now"


async def test_a_turn_is_logged_once_and_as_acting_only_when_it_acted(db: Database) -> None:
    stage = await set_stage(db, WallClock())

    async def fails(_: World) -> Report:
        raise ConnectionRefusedError("the database is away")

    async def acts(_: World) -> Report:
        event = Event("orphan_terminated", {"account": "fake", "provider_ref": "7"})
        return Report(acted_on=2, errors=["one of three failed"], events=[event])

    async def meets_errors(_: World) -> Report:
        return Report(errors=["all failed"])

    async def idles(_: World) -> Report:
        return Report()

    hour = timedelta(hours=1)
    loops = [
        Loop(name, hour, activate)
        for name, activate in (
            ("rate_usage", fails),
            ("meter_usage", acts),
            ("fund_leases", meets_errors),
            ("prune_records", idles),
        )
    ]
    runner = Runner(stage.world, loops)
    with structlog.testing.capture_logs() as logs:
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(SECONDS_MAX):
            while len([line for line in logs if "loop" in line]) < 4:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.05)
        runner.stop()
        await asyncio.wait_for(running, timeout=SECONDS_MAX)
    said = sorted((line["loop"], line["event"]) for line in logs if "loop" in line)
    assert said == [
        ("fund_leases", "loop_met_errors"),
        ("meter_usage", "loop_acted"),
        ("meter_usage", "orphan_terminated"),
        ("rate_usage", "loop_failed"),
    ]


async def test_a_notification_wakes_the_loops_that_hear_its_channel_and_each_new_connection_wakes_them(
    db: Database, database_url: str
) -> None:
    stage = await set_stage(db, WallClock())
    runs: Counter[str] = Counter()

    def counts(name: str) -> Callable[[World], Awaitable[Report]]:
        async def activate(_: World) -> Report:
            runs[name] += 1
            return Report()

        return activate

    hour = timedelta(hours=1)
    loops = [
        Loop("meter_usage", hour, counts("hears"), hears=("bell",)),
        Loop("rate_usage", hour, counts("deaf"), hears=("another_bell",)),
        Loop("fund_leases", hour, counts("paced")),
    ]
    listener = Listener(login_url(database_url, Role.RECONCILER), role=Role.RECONCILER.value)
    runner = Runner(stage.world, loops, listener)
    running = asyncio.create_task(runner.run())
    # Once when it starts, and once more when notifications arrive, because some may have been missed.
    await until(lambda: runs["hears"] == runs["deaf"] == 2, seconds_max=SECONDS_MAX)
    async with db.transaction() as connection:
        await connection.execute(text("SELECT pg_notify('bell', '')"))
    await until(lambda: runs["hears"] == 3, seconds_max=SECONDS_MAX)
    assert (runs["deaf"], runs["paced"]) == (2, 1)
    runner.stop()
    await asyncio.wait_for(
        running, timeout=5
    )  # It does not wait for the listener, which never ends by itself.


async def test_what_runs_beside_a_loop_wakes_it_begins_anew_after_a_failure_and_ends_with_it(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "BESIDE_AGAIN_SECONDS", 0.01)
    stage = await set_stage(db, WallClock())
    runs: Counter[str] = Counter()

    async def activate(_: World) -> Report:
        runs["activations"] += 1
        return Report()

    async def beside(_: World, wake: Callable[[], None]) -> None:
        runs["begun"] += 1
        if runs["begun"] < 3:
            wake()
            raise ConnectionRefusedError("its cluster is away")
        try:
            await asyncio.Event().wait()
        finally:
            runs["ended"] += 1

    runner = Runner(stage.world, [Loop("meter_usage", timedelta(hours=1), activate, beside=beside)])
    running = asyncio.create_task(runner.run())
    await until(lambda: runs["begun"] == 3 and runs["activations"] >= 2, seconds_max=SECONDS_MAX)
    runner.stop()
    await asyncio.wait_for(running, timeout=SECONDS_MAX)
    assert runs["ended"] == 1


def test_a_loop_per_account_in_a_wing_without_accounts_is_refused_when_it_is_discovered() -> None:
    async def activate(_: World, account: AccountName) -> Report:
        return Report(notes=[account])

    for wing in sorted(registry.wings()):
        module = ModuleType(f"reconciler.loops.{wing}.some_loop")
        vars(module)["LOOP"] = AccountLoop("some_loop", timedelta(seconds=1), activate)
        if wing in registry.ROWS_ONLY:
            with pytest.raises(
                registry.MalformedLoop, match=f"the wing {wing} works on rows alone"
            ) as refusal:
                registry.loop_of(module, wing)
            assert f"reconciler/loops/{wing}/some_loop.py" in str(refusal.value)
        else:
            assert registry.loop_of(module, wing).name == "some_loop", wing


async def test_an_account_that_never_answers_delays_no_other_account(db: Database) -> None:
    stage = await set_stage(db, WallClock(), names=(FAKE, HEALTHY))
    answers = asyncio.Event()
    hung = stage.clouds[FAKE]

    async def owes_the_answer() -> None:
        await answers.wait()

    hung.slow = owes_the_answer
    for verb in ("offers", "inventory"):
        hung.faults.always(verb, Fault.SLOW)
    organization_id = await stage.organization()
    runner = Runner(stage.world, registry.discovered().values())
    running = asyncio.create_task(runner.run())
    try:
        lease = await stage.lease(organization_id)
        async with asyncio.timeout(SECONDS_MAX):
            while await stage.state(lease) != "ready":  # noqa: ASYNC110 - a row has no event to wait for
                await asyncio.sleep(0.05)
        assert hung.calls_of("inventory") == 1, "it was asked, and still owes the answer"
        assert not stage.clouds[FAKE].alive()
        assert len(stage.clouds[HEALTHY].alive()) == 1
    finally:
        answers.set()
        runner.stop()
        await asyncio.wait_for(running, timeout=SECONDS_MAX)


async def test_a_challenge_that_hangs_delays_no_other_machine_of_its_account(db: Database) -> None:
    stage = await set_stage(db, WallClock())
    organization_id = await stage.organization()
    stage.challenger.otherwise = Answer(hangs=True)
    runner = Runner(stage.world, registry.discovered().values())
    running = asyncio.create_task(runner.run())
    try:
        hung = await stage.lease(organization_id, CapacityRequest("h100x1-proven"))
        async with asyncio.timeout(SECONDS_MAX):
            await stage.challenger.hanging.wait()
        stage.challenger.otherwise = PASSED
        others = [
            await stage.lease(organization_id, CapacityRequest(sku)) for sku in ("h100x1", "h100x1-proven")
        ]
        async with asyncio.timeout(SECONDS_MAX):
            for lease in others:
                while await stage.state(lease) != "ready":  # noqa: ASYNC110 - a row has no event to wait for
                    await asyncio.sleep(0.05)
        assert await stage.state(hung) == "starting"
    finally:
        runner.stop()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not true():  # noqa: ASYNC110 - counts have no event to wait for
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _running(world: World, *loops: Loop[World]) -> AsyncIterator[Runner]:
    runner = Runner(world, loops)
    task = asyncio.create_task(runner.run())
    try:
        yield runner
        assert not task.done(), "a runner runs until it is stopped"
    finally:
        runner.stop()
        await asyncio.wait_for(task, timeout=SECONDS_MAX)


class _Counting:
    """A loop that counts its activations, and raises what it is given in each."""

    def __init__(self, name: str, *, raises: BaseException | None = None) -> None:
        self.count = 0
        self._raises = raises
        self.loop = Loop(name, timedelta(milliseconds=5), self._activate)

    async def _activate(self, _: World) -> Report:
        self.count += 1
        if self._raises is not None:
            raise self._raises
        return Report(acted_on=1)


async def _both_go_on(one: _Counting, other: _Counting) -> None:
    await _until(lambda: min(one.count, other.count) > 2)


class _Refusing:
    """A database in which no report can be stored."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        raise self._error
        yield


def _world(db: object, **more: Any) -> World:
    return World(db=cast("Database", db), now=utc_now, new_id=uuid7, **more)


async def test_no_error_of_the_bookkeeping_of_one_loop_ends_it_or_another_one() -> None:
    passing = [
        DBAPIError("INSERT", None, error("m"))
        for error in (
            asyncpg.LockNotAvailableError,
            asyncpg.QueryCanceledError,
            asyncpg.DeadlockDetectedError,
            asyncpg.SerializationError,
            asyncpg.InvalidCatalogNameError,
        )
    ]
    for error in (*passing, ConnectionRefusedError(), ZeroDivisionError("a bug of ours")):
        with case(error), structlog.testing.capture_logs() as lines:
            one, other = _Counting("one"), _Counting("other")
            async with _running(_world(_Refusing(error)), one.loop, other.loop):
                await _both_go_on(one, other)
            unwritten = [line for line in lines if line["event"] == "report_not_written"]
            expected = "error" if isinstance(error, ZeroDivisionError) else "warning"
            assert {line["log_level"] for line in unwritten} == {expected}
            assert {line["loop"] for line in unwritten} == {"one", "other"}


async def test_a_loop_runs_again_whatever_an_activation_raises_a_stray_cancellation_included() -> None:
    for error in (
        ZeroDivisionError(),
        asyncio.CancelledError(),
        ExceptionGroup("two", [OSError(), ValueError()]),
    ):
        with case(error), structlog.testing.capture_logs() as lines:
            one, other = _Counting("one", raises=error), _Counting("other")
            async with _running(_world(_Refusing(OSError())), one.loop, other.loop):
                await _both_go_on(one, other)
            failed = [line for line in lines if line["event"] == "loop_failed"]
            assert {line["loop"] for line in failed} == {"one"}
            assert failed[0]["error"].startswith(type(error).__name__)


def _seconds(name: str, loop: str) -> float:
    labels = {"loop": loop, "account": ""}
    found = REGISTRY.get_sample_value(f"splitplane_loop_{name}_seconds", labels)
    assert found is not None
    return found


async def test_the_metrics_tell_a_loop_that_fails_from_one_that_is_late_and_from_a_healthy_one() -> None:
    clock = Clock()
    started = clock.now().timestamp()
    well, failing = _Counting("well"), _Counting("failing", raises=OSError("away"))
    late = _Counting("late")
    late.loop = Loop("late", timedelta(hours=1), late.loop.activate)
    world = World(db=cast("Database", _Refusing(OSError())), now=clock.now, new_id=uuid7)
    async with _running(world, well.loop, failing.loop, late.loop):
        await _until(lambda: late.count == 1)
        clock.advance(100)
        one, other = well.count, failing.count
        await _until(lambda: well.count > one + 1 and failing.count > other + 1)
        activations = [
            _seconds("last_activation_timestamp", name) - started for name in ("well", "failing", "late")
        ]
        successes = [
            _seconds("last_success_timestamp", name) - started for name in ("well", "failing", "late")
        ]
    assert activations == [100, 100, 0]
    assert successes == [100, 0, 0]
    assert _seconds("late_after", "late") == late_after(late.loop).total_seconds()


async def test_a_clock_that_fails_ends_no_loop() -> None:
    failing = True

    def refusal() -> str | None:
        if failing:
            raise ZeroDivisionError
        return None

    one = _Counting("one")
    with structlog.testing.capture_logs() as lines:
        async with _running(_world(_Refusing(OSError()), clock_refusal=refusal), one.loop):
            await _until(lambda: any(line["event"] == "loop_bookkeeping_failed" for line in lines))
            failing = False
            await _until(lambda: one.count > 2)


async def test_a_cancelled_library_inside_one_item_is_an_error_in_the_report_and_no_silence() -> None:
    report = Report()

    async def act(item: int) -> None:
        if item == 1:
            raise asyncio.CancelledError

    await each([0, 1, 2], act, report)
    assert report.errors == ["CancelledError: a library gave up its own work"]


async def test_what_items_come_to_that_end_at_the_same_time_is_counted_for_each() -> None:
    report, together = Report(), asyncio.Barrier(3)

    async def act(_: int) -> None:
        async def end() -> int:
            await together.wait()
            return 1

        report.count(await end())

    await each([0, 1, 2], act, report)
    assert report.acted_on == 3


async def test_a_table_that_is_locked_for_longer_than_the_lock_timeout_ends_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_plane.db.engine.LOCK_TIMEOUT_MS", 20)
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    db = Database(database_url, role=Role.RECONCILER, pool_size=2, readers=2)
    one = _Counting("one")
    stored = text("SELECT activations FROM loop_reports WHERE loop = 'one'")
    try:
        with structlog.testing.capture_logs() as lines:
            async with owner.transaction() as connection:
                await connection.execute(text("LOCK TABLE loop_reports"))
                async with _running(_world(db), one.loop):
                    await _until(lambda: sum(line["event"] == "report_not_written" for line in lines) > 1)
                    assert "lock timeout" in next(line["error"] for line in lines if "error" in line)
            async with _running(_world(db), one.loop), owner.reading() as connection:
                async with asyncio.timeout(SECONDS_MAX):
                    while not await rows(connection, stored):  # noqa: ASYNC110 - a row has no event to wait for
                        await asyncio.sleep(0.01)
    finally:
        await asyncio.gather(owner.close(), db.close())


async def test_while_the_clock_is_refused_no_activation_starts_and_operators_read_why(db: Database) -> None:
    refusal: list[str | None] = ["The clock of this host is 3600.0 s ahead of the database's."]
    one = _Counting("one")
    async with _running(_world(db, clock_refusal=lambda: refusal[0]), one.loop):
        async with asyncio.timeout(SECONDS_MAX), db.reading() as connection:
            while not (found := await loop_reports.reports(connection)):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        assert list(found[0].errors) == refusal
        assert one.count == 0
        refusal[0] = None
        await _until(lambda: one.count > 0)


async def test_a_runner_stops_in_a_bounded_time_although_an_activation_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reconciler.runner.FINISH_SECONDS_MAX", 0.05)
    monkeypatch.setattr("reconciler.runner.UNWIND_SECONDS_MAX", 0.05)
    hangs = asyncio.Event()

    async def hang(_: World) -> Report:
        while True:
            hangs.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            if not stuck:
                return Report()

    for stuck in (False, True):
        with case("stuck" if stuck else "hangs"), structlog.testing.capture_logs() as lines:
            hangs.clear()
            runner = Runner(_world(_Refusing(OSError())), [Loop("hanging", timedelta(seconds=1), hang)])
            running = asyncio.create_task(runner.run())
            await hangs.wait()
            runner.stop()
            await asyncio.wait_for(running, SECONDS_MAX)
            said = [line for line in lines if "activations" in line["event"]]
            events = [line["event"] for line in said]
            assert events == ["activations_cancelled", *(["activations_stuck"] if stuck else [])]
            assert said[0]["loops"] == ["hanging"]
    stuck = False
    for task in asyncio.all_tasks():
        if task.get_name() == "hanging":
            task.cancel()
            await asyncio.wait([task])


async def test_a_loop_is_overdue_when_no_activation_has_finished_for_longer_than_it_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered = asyncio.Event()

    async def hang(_: World) -> Report:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("reconciler.runner.FINISH_SECONDS_MAX", 0.0)
    other = _Counting("other")
    async with _running(
        _world(_Refusing(OSError())), Loop("hanging", timedelta(seconds=1), hang), other.loop
    ) as runner:
        await entered.wait()
        assert not runner.overdue()
        monkeypatch.setattr("reconciler.runner.late_after", lambda _: timedelta(milliseconds=200))
        await _until(lambda: bool(runner.overdue()))
        assert runner.overdue() == ["hanging"]


async def test_account_loops_start_and_end_with_their_accounts(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As operators add and remove accounts, while another account's loop runs on."""
    monkeypatch.setattr(runner_module, "FOLLOW_ACCOUNTS", timedelta(milliseconds=20))
    stage = await set_stage(db, WallClock())
    names, turns = [FAKE], Counter[AccountName]()

    async def activate(world: Any, account: AccountName) -> Report:
        turns[account] += 1
        return Report(acted_on=1)

    refreshes = 0

    async def refresh() -> None:
        nonlocal refreshes
        refreshes += 1
        if refreshes == 2:
            raise OSError("the database is away")

    world = dataclasses.replace(stage.world, account_names=names, refresh_accounts=refresh)
    runner = Runner(world, [AccountLoop("follows", timedelta(milliseconds=10), activate)])
    running = asyncio.create_task(runner.run())

    async def reported() -> set[str]:
        async with db.reading() as connection:
            return {report.account for report in await loop_reports.reports(connection)}

    async def until(goal: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not await goal():  # noqa: ASYNC110 - a row has no event to wait for
                await asyncio.sleep(0.02)

    async def both() -> bool:
        return await reported() == {FAKE, HEALTHY}

    async def first_alone() -> bool:
        return await reported() == {FAKE}

    await until(first_alone)
    names.append(HEALTHY)
    await until(both)
    names.remove(HEALTHY)
    await until(first_alone)
    ended, before = turns[HEALTHY], turns[FAKE]
    async with asyncio.timeout(SECONDS_MAX):
        while turns[FAKE] < before + 3:  # noqa: ASYNC110 - a loop has no event to wait for
            await asyncio.sleep(0.02)
    assert turns[HEALTHY] == ended
    assert not [late for late in runner.overdue() if HEALTHY in late]
    shown = {"loop": "follows", "account": HEALTHY}
    assert REGISTRY.get_sample_value("splitplane_loop_late_after_seconds", shown) is None
    runner.stop()
    await asyncio.wait_for(running, timeout=SECONDS_MAX)
