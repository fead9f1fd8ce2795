"""Announcements of providers that change, come late or contradict each other: nobody is told anything untrue or twice,
and nothing is kept that is not needed.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.domain.machine import MachineState
from control_plane.domain.notice import NoticeKind
from control_plane.domain.planned_work import PlannedWork
from control_plane.domain.repair import STEP_LASTS, RepairStep
from data_plane.documents.health import Recovery
from data_plane.documents.sample import Gpu
from providers.guard import Guard
from reconciler.loops.machines.read_planned_work import EVERY
from tests.scenario.test_health import machine_of, reports
from tests.scenario.test_planned_work import PLANNED, READ, WITHDRAWN, golden, plan, told
from tests.support.faults import GOOD, shows
from tests.support.hand_backs import asked_for_another
from tests.support.ready import ready_leases
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
_STEPS = text("SELECT step FROM repairs WHERE closed_at IS NULL")
_RESERVED = text("SELECT state FROM machines WHERE reserved_for IS NOT NULL")
_WORK = text("SELECT why FROM journal WHERE event = 'planned_work' ORDER BY number")
_BREACHES = text("SELECT promise FROM sla_breaches")
_OPEN = text("SELECT id FROM maintenances WHERE ended_at IS NULL")


async def test_a_list_that_a_stopped_process_brings_late_is_dropped(stage: Stage) -> None:
    """Beside a newer one that lacks the event too, it would be the second of two lists in a row."""
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    plan(stage, machine, stage.clock.now() + timedelta(days=14))
    await stage.play(READ, step=30)
    planned_work, other = Guard.planned_work, stage.replica("another one")

    async def stops_after_it(guard: Guard) -> Sequence[PlannedWork]:
        listed = await planned_work(guard)
        patch.setattr(Guard, "planned_work", planned_work)
        stage.clock.advance(EVERY.total_seconds())
        await stage.run("read_planned_work", world=other)
        return listed

    stage.cloud.call_off_work()
    stage.clock.advance(EVERY.total_seconds())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "planned_work", stops_after_it)
        (report,) = await stage.run("read_planned_work")
    assert (report.acted_on, report.errors) == (0, [])
    assert "this one is dropped" in report.notes[0]
    assert await told(stage, lease, WITHDRAWN) == [], "only one list that counts lacks it"
    await stage.play(READ, step=30)
    assert len(await told(stage, lease, WITHDRAWN)) == 1


async def test_two_events_that_say_the_same_are_told_once_and_one_of_them_is_not_called_off(
    stage: Stage,
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    at = stage.clock.now() + timedelta(days=14)
    for event in ("event-1", "event-2"):
        plan(stage, machine, at, event=event)
    await stage.play(READ, step=30)
    assert len(await told(stage, lease, PLANNED)) == 1
    stage.cloud.call_off_work("event-1")
    await stage.play(3 * READ, step=60)
    assert await told(stage, lease, WITHDRAWN) == [], "the other one still says that it will happen"
    stage.cloud.call_off_work("event-2")
    await stage.play(3 * READ, step=60)
    assert len(await told(stage, lease, WITHDRAWN)) == 1


async def test_work_whose_time_changes_again_and_again_keeps_no_fault_from_being_repaired(
    stage: Stage,
) -> None:
    lease, machine = await golden(stage)
    at = stage.clock.now() + timedelta(days=14)
    plan(stage, machine, at)
    await stage.play(READ, step=30)
    shows(stage, machine, replace(GOOD, recovery=Recovery(action=1)))
    await reports(stage, lease, Gpu(0, recovery_action=1))
    for hours in range(1, 10):
        plan(stage, machine, at + timedelta(hours=hours))
        await stage.play(EVERY.total_seconds(), step=30)
    assert len(await told(stage, lease, NoticeKind.RESET_PLANNED)) == 1
    assert len(await told(stage, lease, NoticeKind.REPLACED)) == 1
    await stage.finish()


async def test_a_machine_is_kept_ready_only_for_work_that_is_near(stage: Stage) -> None:
    lease, machine = await golden(stage)
    at = stage.clock.now() + timedelta(days=4)
    plan(stage, machine, at)
    await stage.play((at - stage.clock.now()).total_seconds() - 1_800, step=300)
    async with stage.db.reading() as connection:
        assert [row.state for row in await rows(connection, _RESERVED)] == [MachineState.VERIFIED]
    put_off = at + timedelta(hours=6)
    plan(stage, machine, put_off)
    await stage.play(READ + 600, step=30)
    async with stage.db.reading() as connection:
        assert [row.state for row in await rows(connection, _RESERVED)] == [MachineState.GONE]
    await stage.play((put_off - stage.clock.now()).total_seconds() + 600, step=120)
    old, new = await stage.machines(lease)
    assert (old.id, new.reserved_for) == (machine.id, lease.id), (
        "another one is ordered when the time has come"
    )
    await stage.finish()


async def test_work_on_a_machine_that_its_lease_has_no_longer_ends_without_a_word(stage: Stage) -> None:
    lease, machine = await golden(stage)
    plan(stage, machine, stage.clock.now() + timedelta(days=4))
    await stage.play(READ, step=30)
    await asked_for_another(stage, lease)
    await stage.play_until(lease, "placing", seconds_max=120)
    await stage.play(3 * READ, step=30)
    async with stage.db.reading() as connection:
        (announced,) = await rows(connection, _WORK)
        assert "plans work on it" in announced.why
        assert await rows(connection, _OPEN) == []
    assert await told(stage, lease, WITHDRAWN) == []
    await stage.finish()


async def test_planned_work_that_a_customer_may_wait_for_is_no_repair_that_waits_for_its_provider(
    stage: Stage,
) -> None:
    """An operator is alerted after a day of that, with nothing to do for them."""
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    at = stage.clock.now() + timedelta(days=14)
    plan(stage, machine, at)
    await stage.play(READ + 2 * STEP_LASTS[RepairStep.REPLACE].total_seconds(), step=120)
    plan(stage, machine, at + timedelta(days=1))
    await stage.play(READ, step=60)
    async with stage.db.reading() as connection:
        assert [row.step for row in await rows(connection, _STEPS)] == [RepairStep.REPLACE]
    assert len(await told(stage, lease, NoticeKind.REPLACEMENT_RECOMMENDED)) == 1, "it names no time"
    assert len(await told(stage, lease, PLANNED)) == 2
    await stage.finish()


async def test_work_under_way_that_lists_lack_for_a_while_keeps_its_announcement(stage: Stage) -> None:
    """Announced anew, it would be announced too late: two promises broken, and money given back."""
    lease, machine = await golden(stage)
    at = stage.clock.now() + timedelta(days=4)
    plan(stage, machine, at)
    await stage.play(READ, step=60)
    stage.cloud.stock = dict.fromkeys(stage.cloud.stock, 0)
    await stage.play((at - stage.clock.now()).total_seconds() + 1_200, step=1_200)
    stage.cloud.call_off_work()
    await stage.play(3 * READ, step=60)
    async with stage.db.reading() as connection:
        assert await rows(connection, _OPEN) == []
    plan(stage, machine, at)
    await stage.play(2 * READ, step=60)
    async with stage.db.reading() as connection:
        assert len(await rows(connection, _OPEN)) == 1
    assert len(await told(stage, lease, PLANNED, WITHDRAWN)) == 1
    await stage.release(lease)
    await stage.play(120, step=10)
    async with stage.db.reading() as connection:
        assert await rows(connection, _BREACHES) == []
    await stage.finish()
