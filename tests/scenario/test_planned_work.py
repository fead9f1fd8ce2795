"""Work that a provider announces: its customers are told once, and what an operator's planned work brings follows."""

import shlex
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from control_plane.db import repair_figures
from control_plane.db.health import Notice
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine, MachineState
from control_plane.domain.notice import NoticeKind
from control_plane.domain.planned_work import TOLD_MAX, TOLD_WITHIN, WorkKind
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import Promise
from data_plane.documents.health import Recovery
from data_plane.documents.sample import Gpu
from providers.fake import Fault
from reconciler.loops.machines.read_planned_work import EVERY
from tests.scenario.test_health import machine_of, notices_of, reports, verdict_of
from tests.support import pools
from tests.support.faults import GOOD, LOST, shows
from tests.support.promises import put_terms_in_force
from tests.support.ready import ready_leases
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
READ = EVERY.total_seconds() + 90
PLANNED, WITHDRAWN = NoticeKind.MAINTENANCE_PLANNED, NoticeKind.MAINTENANCE_WITHDRAWN
_BREACHES = text("SELECT promise, evidence FROM sla_breaches ORDER BY promise")
_CHANGES = text("SELECT verdict, fault FROM health_changes ORDER BY number")
_STATE = text("SELECT state, fail_reason FROM machines WHERE id = :id")


def plan(
    stage: Stage,
    machine: Machine,
    at: datetime,
    *,
    event: str = "event-1",
    kind: WorkKind = WorkKind.REBOOT,
) -> None:
    assert machine.provider_ref is not None
    stage.cloud.plan_work(machine.provider_ref, at, event=event, kind=kind)


async def told(stage: Stage, lease: Lease, *kinds: NoticeKind) -> list[Notice]:
    return [notice for notice in await notices_of(stage, lease) if notice.kind in kinds]


async def golden(stage: Stage, tier: SlaTier = SlaTier.GOLD) -> tuple[Lease, Machine]:
    await put_terms_in_force(stage)
    lease = await stage.lease(await stage.organization(), CapacityRequest("h100x1", sla=tier))
    await stage.play_until(lease, "ready", seconds_max=90)
    return lease, await machine_of(stage, lease)


async def test_an_announcement_is_told_once_with_its_time_and_told_again_when_that_changes(
    stage: Stage,
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    at = stage.clock.now() + timedelta(days=14)
    plan(stage, machine, at)
    await stage.play(READ, step=30)
    (notice,) = await told(stage, lease, PLANNED)
    assert (notice.planned_at, notice.machine_id) == (at, machine.id)
    assert "it will be rebooted (planned-reboot), not before" in notice.message
    (choice,) = await told(stage, lease, NoticeKind.REPLACEMENT_RECOMMENDED)
    assert choice.at >= notice.at, "its tier leaves the choice to the customer"
    assert choice.message.startswith("Another machine would be spared the work that is planned")
    command = choice.message.partition("splitplane ")[2].partition(". ")[0]
    assert shlex.split(command) == ["lease", "replace", "LEASE", "--reason", "planned work"], (
        "it can be copied"
    )
    await stage.play(3 * READ, step=60)
    assert len(await told(stage, lease, PLANNED)) == 1
    for moved in (at + timedelta(days=1), at - timedelta(days=1)):
        plan(stage, machine, moved)
        await stage.play(READ, step=30)
        assert (await told(stage, lease, PLANNED))[-1].planned_at == moved
    assert len(await told(stage, lease, PLANNED)) == 3
    assert await told(stage, lease, WITHDRAWN) == []
    assert [each.id for each in await stage.machines(lease)] == [machine.id]
    await stage.finish()


async def test_work_of_another_kind_at_the_same_time_is_told_again_and_so_is_what_comes_back(
    stage: Stage,
) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    at = stage.clock.now() + timedelta(days=14)
    for kind in (WorkKind.REBOOT, WorkKind.RETIREMENT):
        plan(stage, machine, at, kind=kind)
        await stage.play(READ, step=30)
    first, second = await told(stage, lease, PLANNED)
    assert ("be rebooted" in first.message, "be retired" in second.message) == (True, True)
    stage.cloud.call_off_work()
    await stage.play(3 * READ, step=60)
    plan(stage, machine, at, kind=WorkKind.RETIREMENT)
    await stage.play(READ, step=30)
    kinds = [notice.kind for notice in await told(stage, lease, PLANNED, WITHDRAWN)]
    assert kinds == [PLANNED, PLANNED, WITHDRAWN, PLANNED]
    await stage.finish()


async def test_work_that_is_called_off_is_withdrawn_by_two_lists_that_lack_it(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    plan(stage, machine, stage.clock.now() + timedelta(days=14))
    await stage.play(READ, step=30)
    assert await verdict_of(stage, machine) == "maintenance_required"
    async with stage.db.reading() as connection:
        (counted,) = (await repair_figures.repairs(connection)).unhealthy
    assert (counted.verdict, counted.planned) == ("maintenance_required", True), "no alert counts it as bad"
    stage.cloud.call_off_work()
    stage.cloud.faults.script("planned_work", Fault.LISTING_FAILS, Fault.LISTING_FAILS, Fault.LISTING_FAILS)
    await stage.play(READ, step=30)
    assert await told(stage, lease, WITHDRAWN) == [], "a list that fails says nothing"
    await stage.play(READ, step=30)
    assert await told(stage, lease, WITHDRAWN) == [], "one list may be wrong"
    await stage.play(READ, step=30)
    assert len(await told(stage, lease, WITHDRAWN)) == 1
    assert await verdict_of(stage, machine) == "healthy"
    assert [each.id for each in await stage.machines(lease)] == [machine.id]
    await stage.finish()


async def test_a_lease_whose_tier_promises_it_has_another_machine_before_work_that_was_announced_in_time(
    stage: Stage,
) -> None:
    lease, machine = await golden(stage)
    at = stage.clock.now() + timedelta(days=4)
    plan(stage, machine, at)
    await stage.play((at - stage.clock.now()).total_seconds() - 2 * 3_600, step=600)
    assert [each.id for each in await stage.machines(lease)] == [machine.id], "nothing interrupts it before"
    assert [notice.planned_at for notice in await told(stage, lease, NoticeKind.REPLACEMENT_PLANNED)] == [at]
    await stage.play(2 * 3_600 + 600, step=60)
    old, new = await stage.machines(lease)
    assert (old.id, new.reserved_for) == (machine.id, lease.id)
    assert await stage.state(lease) == "ready"
    await stage.release(lease)
    await stage.play(120, step=10)
    async with stage.db.reading() as connection:
        assert await rows(connection, _BREACHES) == []
    await stage.finish()


async def test_a_customer_is_told_again_when_its_machine_is_replaced_if_the_work_is_put_off(
    stage: Stage,
) -> None:
    lease, machine = await golden(stage)
    at = stage.clock.now() + timedelta(days=4)
    for planned_at in (at, at + timedelta(days=1)):
        plan(stage, machine, planned_at)
        await stage.play(READ, step=60)
    planned = await told(stage, lease, NoticeKind.REPLACEMENT_PLANNED)
    assert [notice.planned_at for notice in planned] == [at, at + timedelta(days=1)]
    await stage.finish()


async def test_work_that_was_announced_too_late_is_a_broken_promise_by_the_providers_word(
    stage: Stage,
) -> None:
    lease, machine = await golden(stage)
    stage.cloud.stock = dict.fromkeys(stage.cloud.stock, 0)
    plan(stage, machine, stage.clock.now() + timedelta(hours=1))
    await stage.play(4 * 3_600, step=120)
    assert [each.id for each in await stage.machines(lease)] == [machine.id], "there is no other one"
    stage.cloud.call_off_work()
    await stage.play(3 * READ, step=30)
    assert await told(stage, lease, WITHDRAWN) == [], "it was done, not called off"
    await stage.release(lease)
    await stage.play(120, step=10)
    async with stage.db.reading() as connection:
        found = {row.promise: row.evidence for row in await rows(connection, _BREACHES)}
    assert found.keys() == {Promise.AVAILABILITY, Promise.NOTICE}
    (work,) = found[Promise.NOTICE]["maintenance"]
    assert work["by_provider"] is True
    await stage.finish()


async def test_work_that_is_planned_on_many_machines_keeps_no_faulty_one_from_being_replaced(
    stage: Stage,
) -> None:
    await put_terms_in_force(stage)
    organization_id = await stage.organization()
    leases = [
        await stage.lease(
            organization_id, CapacityRequest("h100x1", sla=SlaTier.GOLD), name=f"train-{number}"
        )
        for number in range(4)
    ]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=120)
    machines = [await machine_of(stage, lease) for lease in leases]
    for number, machine in enumerate(machines[1:]):
        plan(stage, machine, stage.clock.now() + timedelta(days=14), event=f"event-{number}")
    await stage.play(READ, step=30)
    shows(stage, machines[0], LOST)
    await reports(stage, leases[0], Gpu(0, lost=True))
    await stage.play(1_800, step=60)
    assert len(await stage.machines(leases[0])) == 2, (
        "three of four machines are not healthy, by what is announced"
    )
    await stage.finish()


async def test_a_fault_is_told_repaired_and_counted_also_while_work_is_planned(stage: Stage) -> None:
    """Both make a machine require maintenance, and the work is known for longer."""
    lease, machine = await golden(stage)
    at = stage.clock.now() + timedelta(days=14)
    plan(stage, machine, at)
    await stage.play(READ, step=30)
    (planned,) = await told(stage, lease, NoticeKind.REPLACEMENT_PLANNED)
    assert planned.planned_at == at
    await stage.play(3_600, step=600)
    stage.cloud.stock = dict.fromkeys(stage.cloud.stock, 0)
    shows(stage, machine, replace(GOOD, recovery=Recovery(action=1)))
    await reports(stage, lease, Gpu(0, recovery_action=1))
    await stage.play(120, step=10)
    (fault,) = await told(stage, lease, NoticeKind.FAULT_FOUND)
    assert "the driver asks for a recovery" in fault.message
    (reset,) = await told(stage, lease, NoticeKind.RESET_PLANNED)
    assert reset.planned_at is not None
    assert reset.planned_at < at - timedelta(days=13), "it does not wait for the work"
    await stage.play(2 * 3_600, step=240)
    async with stage.db.reading() as connection:
        changed = await rows(connection, _CHANGES)
    assert [(row.verdict, row.fault) for row in changed[:2]] == [
        ("maintenance_required", "provider_maintenance"),
        ("maintenance_required", "recovery_needed"),
    ]
    await stage.release(lease)
    await stage.play(120, step=10)
    async with stage.db.reading() as connection:
        assert Promise.AVAILABILITY in {row.promise for row in await rows(connection, _BREACHES)}
    await stage.finish()


async def test_a_machine_that_waits_in_a_pool_goes_when_its_provider_will_work_on_it(stage: Stage) -> None:
    await stage.organization()
    (machine_id,) = await pools.waiting(stage)
    async with stage.db.reading() as connection:
        ref = (await rows(connection, text("SELECT provider_ref FROM machines")))[0].provider_ref
    stage.cloud.plan_work(ref, stage.clock.now() + timedelta(days=14))
    await stage.play(READ + 600, step=30)
    async with stage.db.reading() as connection:
        (row,) = await rows(connection, _STATE, id=machine_id)
    assert (row.state, row.fail_reason) == (MachineState.GONE, "unhealthy")
    await stage.finish()


async def test_a_provider_that_changes_its_word_all_the_time_floods_no_customer(stage: Stage) -> None:
    lease, machine = await golden(stage)
    at, began = stage.clock.now() + timedelta(days=14), stage.clock.now()
    for number in range(40):
        for event in range(20):
            moved = at + timedelta(hours=number % 2, minutes=event)
            plan(stage, machine, moved, event=f"event-{event}")
        if number % 5 == 4:
            stage.cloud.works.clear()
        await stage.play(EVERY.total_seconds() + 10, step=100)
    assert stage.clock.now() - began < TOLD_WITHIN
    assert len(await told(stage, lease, PLANNED)) == TOLD_MAX
    assert len(await told(stage, lease, WITHDRAWN, NoticeKind.REPLACEMENT_PLANNED)) <= 2 * TOLD_MAX
    stage.cloud.works.clear()
    plan(stage, machine, at)
    await stage.play(TOLD_WITHIN.total_seconds() + READ, step=300)
    assert (await told(stage, lease, PLANNED))[-1].planned_at == at, "what is true in the end is told"
    await stage.finish()
