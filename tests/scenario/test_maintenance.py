"""Machines that operators take out for maintenance, and machines that customers hand back."""

from datetime import timedelta

import pytest

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.ids import OrganizationId
from control_plane.domain.machine import Machine
from control_plane.domain.notice import NoticeKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import repairs
from tests.scenario.test_health import machine_of, notices_of
from tests.support.hand_backs import asked_for_another
from tests.support.ready import ready_leases
from tests.support.stage import Stage

pytestmark = pytest.mark.database
WORK_IN = timedelta(hours=8)


async def taken_out(stage: Stage, platform: OrganizationId, machine: Machine) -> None:
    async with stage.api.db.transaction(platform) as connection:
        taken = await repairs.take_out(
            connection,
            stage.api,
            machine.id,
            why="a fan",
            planned_at=stage.clock.now() + WORK_IN,
            actor=ADMINISTRATOR,
        )
    assert not isinstance(taken, Refused), taken


async def given_back(stage: Stage, platform: OrganizationId, machine: Machine) -> None:
    async with stage.api.db.transaction(platform) as connection:
        ended = await repairs.give_back(connection, stage.api, machine.id, actor=ADMINISTRATOR)
    assert not isinstance(ended, Refused), ended


async def test_planned_work_is_announced_hours_ahead_with_its_time_and_its_end_is_told(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    machine = await machine_of(stage, lease)
    platform, planned = await stage.operators(), stage.clock.now() + WORK_IN
    await taken_out(stage, platform, machine)
    await stage.play(60, step=5)
    told, choice = await notices_of(stage, lease)
    assert (told.kind, told.machine_id, told.planned_at) == (
        NoticeKind.MAINTENANCE_PLANNED,
        machine.id,
        planned,
    )
    assert f"a fan, not before {planned:%Y-%m-%d %H:%M} UTC" in told.message
    assert choice.kind is NoticeKind.REPLACEMENT_RECOMMENDED, "its tier leaves the choice to the customer"
    assert planned - told.at > timedelta(hours=7)
    await given_back(stage, platform, machine)
    await stage.play(60, step=5)
    assert (await notices_of(stage, lease))[-1].kind is NoticeKind.RECOVERED
    assert await stage.state(lease) == "ready"
    assert [each.id for each in await stage.machines(lease)] == [machine.id]
    await stage.finish()


async def test_a_lease_hands_back_three_machines_in_a_day_and_the_next_one_a_day_later(stage: Stage) -> None:
    (lease,) = await ready_leases(stage, 1, seconds=60)
    for _ in range(repairs.HAND_BACKS_MAX):
        await asked_for_another(stage, lease)
        await stage.play_until(lease, "placing", seconds_max=60)
        await stage.play_until(lease, "ready", seconds_max=600)
    async with stage.api.db.transaction(lease.organization_id) as connection:
        refused = await repairs.hand_back(
            connection, stage.api, lease.organization_id, lease.id, why="it is broken", reach=EVERYWHERE
        )
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.HAND_BACKS_TOO_MANY
    await stage.play(repairs.HAND_BACKS_WITHIN.total_seconds(), step=600)
    await asked_for_another(stage, lease)
    await stage.play_until(lease, "placing", seconds_max=60)
    await stage.finish()
