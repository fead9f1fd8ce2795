"""Reboots, stops and starts of leased machines: what the customer, the provider and the bill see."""

import pytest

from control_plane.api.views.leases import lease_view
from control_plane.db.engine import Database
from control_plane.domain.journal import Note
from control_plane.domain.lease import Lease
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.refusal import RefusalCode, Refused
from providers.fake import FakeMachine, Fault
from providers.fake import Settings as FakeSettings
from tests.support.clock import Clock
from tests.support.power import ask, asked
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database

ON, OFF, REBOOTING = PowerState.ON, PowerState.OFF, PowerState.REBOOTING


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    return await set_stage(db, clock, api_db=api_db, settings=FakeSettings(boot_seconds=10.0))


async def a_ready_lease(stage: Stage) -> Lease:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=90)
    return lease


async def refusal(stage: Stage, lease: Lease, action: PowerAction) -> RefusalCode:
    refused = await ask(stage, lease, action)
    assert isinstance(refused, Refused), refused
    return refused.code


async def power_of(stage: Stage, lease: Lease) -> tuple[PowerState, str | None]:
    power = (await stage.shown(lease)).overview.power
    return (ON, None) if power is None else (power.state, power.why)


async def play_until(stage: Stage, lease: Lease, state: PowerState, *, seconds_max: int = 60) -> None:
    for _ in range(0, seconds_max, 5):
        if (await power_of(stage, lease))[0] is state:
            return
        await stage.play(5, step=5)
    raise AssertionError(f"{await power_of(stage, lease)} after {seconds_max} s")


def the_machine(stage: Stage) -> FakeMachine:
    (machine,) = stage.cloud.alive()
    return machine


async def test_a_reboot_keeps_lease_machine_and_host_key_and_boots_it_once(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    before = (await stage.shown(lease)).overview.evidence
    await asked(stage, lease, PowerAction.REBOOT)
    await asked(stage, lease, PowerAction.REBOOT)
    assert await power_of(stage, lease) == (REBOOTING, None)
    assert (await stage.shown(lease)).status.message == "Ready; its machine is being rebooted."
    await play_until(stage, lease, ON)
    shown = await stage.shown(lease)
    assert before is not None
    assert shown.overview.evidence is not None
    assert shown.overview.evidence.machine_id == before.machine_id
    assert shown.overview.evidence.host_key == before.host_key
    assert (shown.overview.lease.state, shown.overview.lease.attempts) == ("ready", 1)
    assert (the_machine(stage).boots, stage.cloud.calls_of("reboot")) == (2, 1)
    story = await stage.story(lease)
    assert story.count(f"lease {Note.POWER_REQUESTED}") == 1
    assert story.count(f"lease {Note.POWER_CHANGED}") == 1
    await stage.check()


async def test_a_stopped_machine_keeps_its_lease_and_comes_back_under_another_address(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    address = the_machine(stage).address
    await asked(stage, lease, PowerAction.STOP)
    await play_until(stage, lease, OFF)
    await stage.play(900, step=60)
    shown = await stage.shown(lease)
    assert (shown.overview.lease.state, await power_of(stage, lease)) == ("ready", (OFF, None))
    assert shown.status.message == "Ready; its machine is stopped, and charged at its price while stopped."
    await asked(stage, lease, PowerAction.START)
    await play_until(stage, lease, ON)
    shown = await stage.shown(lease)
    assert shown.overview.evidence is not None
    assert shown.overview.evidence.address == the_machine(stage).address != address
    assert (await stage.story(lease)).count(f"machine {Note.ADDRESS_CHANGED}") == 1
    await stage.check()
    await stage.finish()


@pytest.mark.parametrize("action", [PowerAction.REBOOT, PowerAction.STOP])
async def test_an_answer_that_was_lost_is_looked_for_before_anything_is_asked_again(
    stage: Stage, action: PowerAction
) -> None:
    lease = await a_ready_lease(stage)
    after = OFF if action is PowerAction.STOP else ON
    for fault, calls in ((Fault.LOST_AFTER_EFFECT, 1), (Fault.LOST_WITHOUT_EFFECT, 2)):
        before, boots = stage.cloud.calls_of(action), the_machine(stage).boots
        stage.cloud.faults.script("power", fault)
        await asked(stage, lease, action)
        await stage.play(5, step=5)
        await play_until(stage, lease, after, seconds_max=200)
        assert stage.cloud.calls_of(action) - before == calls, fault
        assert the_machine(stage).boots - boots == (1 if action is PowerAction.REBOOT else 0)
        if after is OFF:
            await asked(stage, lease, PowerAction.START)
            await play_until(stage, lease, ON)


async def test_what_the_provider_refuses_is_said_and_changes_nothing(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    stage.cloud.faults.script("power", Fault.ORDER_REFUSED)
    await asked(stage, lease, PowerAction.REBOOT)
    await stage.play(10, step=5)
    assert await power_of(stage, lease) == (ON, "the provider refused it")
    await asked(stage, lease, PowerAction.STOP)
    await play_until(stage, lease, OFF)
    stage.cloud.faults.script("power", Fault.NO_CAPACITY)
    await asked(stage, lease, PowerAction.START)
    await stage.play(10, step=5)
    assert await power_of(stage, lease) == (OFF, "the provider has no capacity for it now; try again later")
    assert (await stage.story(lease)).count(f"lease {Note.POWER_FAILED}") == 2


async def test_a_provider_that_is_busy_is_asked_again_and_given_up_after_ten_minutes(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    stage.cloud.faults.script("power", Fault.NOT_YET, Fault.THROTTLED)
    await asked(stage, lease, PowerAction.REBOOT)
    await play_until(stage, lease, ON)
    assert (the_machine(stage).boots, stage.cloud.calls_of("reboot")) == (2, 3)
    stage.cloud.faults.always("power", Fault.NOT_YET)
    await asked(stage, lease, PowerAction.REBOOT)
    await stage.play(660, step=30)
    assert await power_of(stage, lease) == (ON, "the provider did not take the request within ten minutes")


async def test_a_machine_that_does_not_come_back_is_kept_and_the_lease_says_why(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    stage.access.machine(the_machine(stage).address).unreachable = 10_000
    await asked(stage, lease, PowerAction.REBOOT)
    await stage.play(590, step=30)
    assert (await power_of(stage, lease))[0] is REBOOTING
    await stage.play(90, step=30)
    state, why = await power_of(stage, lease)
    assert (state, why) == (ON, "it did not answer within ten minutes; the provider lists it as running")
    assert (await stage.lease_row(lease)).state == "ready"
    assert the_machine(stage).ended_at is None
    assert (await stage.story(lease)).count(f"lease {Note.POWER_FAILED}") == 1


async def test_a_machine_that_stopped_by_itself_can_be_started(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    machine = the_machine(stage)
    machine.stopped = True
    stage.access.machine(machine.address).off = True
    await stage.play(120, step=10)
    assert (await stage.lease_row(lease)).state == "ready"
    await asked(stage, lease, PowerAction.START)
    await play_until(stage, lease, ON)
    assert not machine.stopped


async def test_a_release_while_its_machine_is_stopped_or_being_stopped_ends_everything(stage: Stage) -> None:
    stopped, stopping = await a_ready_lease(stage), await a_ready_lease(stage)
    await asked(stage, stopped, PowerAction.STOP)
    await play_until(stage, stopped, OFF)
    await asked(stage, stopping, PowerAction.STOP)
    for lease in (stopped, stopping):
        assert lease_view(await stage.shown(lease)).power is not None
        await stage.release(lease)
        assert lease_view(await stage.shown(lease)).power is None, "it is not stopping any more"
    await stage.finish()
    assert set((await stage.states()).values()) == {"ended"}


async def test_what_cannot_be_done_is_refused_before_the_provider_is_asked(stage: Stage) -> None:
    waiting = await stage.lease(await stage.organization())
    assert await refusal(stage, waiting, PowerAction.REBOOT) is RefusalCode.LEASE_NOT_READY
    await stage.release(waiting)
    lease = await a_ready_lease(stage)
    await asked(stage, lease, PowerAction.STOP)
    assert await refusal(stage, lease, PowerAction.START) is RefusalCode.POWER_CONFLICT
    await play_until(stage, lease, OFF)
    assert await refusal(stage, lease, PowerAction.REBOOT) is RefusalCode.POWER_CONFLICT
    await asked(stage, lease, PowerAction.STOP)
    await stage.suspend_organization(lease.organization_id)
    assert await refusal(stage, lease, PowerAction.START) is RefusalCode.ORGANIZATION_SUSPENDED
    assert stage.cloud.calls_of("start") == 0
    await stage.finish()
    assert await refusal(stage, lease, PowerAction.START) is RefusalCode.LEASE_NOT_READY
