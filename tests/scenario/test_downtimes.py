"""Machines that their providers list as failed or stopped though nobody asked: what is billed, said, and done about them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import pytest
from sqlalchemy import text

from control_plane.domain.agent import SILENT_AFTER
from control_plane.domain.downtime import DOWN_MAX, SETTLED_AFTER
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import ProviderRef
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.listed_state import ListedState
from control_plane.domain.outage import SEEN_LASTS
from control_plane.domain.power import PowerState
from control_plane.domain.power_action import PowerAction
from control_plane.domain.status import Status, project
from data_plane.simulation.collector import FakeCollector
from providers.fake import FakeMachine
from tests.support.power import asked
from tests.support.ready import ready_leases
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database
AN_HOUR = DOWN_MAX.total_seconds()


async def _machine(stage: Stage, lease: Lease) -> FakeMachine:
    machine = (await stage.machines(lease))[-1]
    return stage.cloud.machines[machine.provider_ref or ProviderRef("")]


async def _silence(stage: Stage, leases: Sequence[Lease]) -> None:
    collector = cast("FakeCollector", stage.world.collector)
    collector.silent |= {str((await _machine(stage, lease)).address) for lease in leases}


async def _status(stage: Stage, lease: Lease) -> Status:
    overview = (await stage.shown(lease)).overview
    return project(overview.lease, overview.evidence, stage.clock.now(), overview.power)


async def test_a_machine_that_its_provider_calls_failed_costs_nothing_and_says_so_until_it_runs_again(
    stage: Stage,
) -> None:
    lease, _ = await ready_leases(stage, 2, seconds=60)
    machine = await _machine(stage, lease)
    last_seen = stage.clock.now()
    stage.clock.advance(2)
    machine.failed = True
    await stage.play(30 * 60, step=120)
    doubt = (await _status(stage, lease)).unconfirmed
    assert doubt is not None
    assert doubt.why == "its provider lists it as 'failed'. Its meter stands still until that changes."
    assert doubt.since - last_seen < timedelta(seconds=10)
    stored = (await stage.machines(lease))[-1]
    assert (stored.sighted_at, stored.provider_state) == (last_seen, "failed")
    assert "machine machine_down" in (await stage.story(lease))
    machine.failed = False
    await stage.play(10)
    again = stage.clock.now()
    assert (await _status(stage, lease)).unconfirmed is None
    assert "machine machine_up" in (await stage.story(lease))
    row = await stage.lease_row(lease)
    assert row.switched_at == ()
    assert row.paused_at[0] == last_seen
    assert again - row.paused_at[1] < timedelta(seconds=20)
    await stage.play(60, step=20)
    await stage.release(lease)
    billed_until = (await stage.lease_row(lease)).billed_until
    assert billed_until is not None
    assert billed_until > again
    await stage.check()
    await stage.finish()


async def test_time_down_costs_the_price_while_stopped_unless_any_list_called_the_machine_failed(
    stage: Stage,
) -> None:
    stopped, worse, kept = leases = await ready_leases(stage, 3, seconds=60)
    last_seen = stage.clock.now()
    stage.clock.advance(2)
    for lease in leases:
        (await _machine(stage, lease)).stopped = True
    await stage.play(600, step=120)
    for lease in (worse, kept):
        (await _machine(stage, lease)).failed = True
    await stage.play(600, step=120)
    assert (await stage.story(worse)).count("machine machine_down") == 2, "stopped, and then failed"
    for lease in (worse, kept):
        (await _machine(stage, lease)).failed = False
    for lease in (stopped, worse):
        (await _machine(stage, lease)).stopped = False
    await stage.play(10)
    again = stage.clock.now()
    paid, free = await stage.lease_row(stopped), await stage.lease_row(worse)
    assert (paid.switched_at[0], paid.paused_at, len(paid.switched_at)) == (last_seen, (), 2)
    assert (free.paused_at[0], free.switched_at, len(free.paused_at)) == (last_seen, (), 2)
    await asked(stage, kept, PowerAction.STOP)
    await stage.play(120, step=2)
    row = await stage.lease_row(kept)
    assert row.paused_at == (last_seen, row.switched_at[0]), "free until it counts as stopped"
    assert row.switched_at[0] > again
    for lease in leases:
        await stage.release(lease)
    await stage.finish()


async def test_what_is_called_failed_for_an_hour_ends_its_lease_unless_its_agent_reports_or_many_are(
    stage: Stage,
) -> None:
    silent, speaks, released, *others = leases = await ready_leases(stage, 7, seconds=60)
    last_seen = stage.clock.now()
    stage.clock.advance(2)
    for lease in leases[:3]:
        (await _machine(stage, lease)).listed_as = ListedState.FAILED
    await _silence(stage, [silent, released])
    await stage.play(600, step=60)
    stories = [await stage.story(lease) for lease in leases]
    assert [story.count("machine machine_down") for story in stories] == [1, 1, 1, 0, 0, 0, 0]
    await stage.release(released)
    await stage.play(AN_HOUR - 660, step=300)
    assert [await stage.state(lease) for lease in (silent, speaks)] == ["ready"] * 2
    await stage.play(180, step=30)
    assert await stage.state(speaks) == "ready", "its agent reports"
    row = await stage.lease_row(silent)
    assert (row.end_reason, row.billed_until) == (EndReason.MACHINE_LOST, last_seen)
    assert row.end_why == "the provider lists it as 'failed', for an hour"
    assert (await stage.attempts(silent))[0].fail_reason is FailReason.PROVIDER_REPORTED_FAILURE
    left = (await stage.lease_row(released)).billed_until
    assert left is not None
    assert left <= last_seen + timedelta(minutes=1), "who lets go of a dead machine pays no more"
    for lease in others:
        (await _machine(stage, lease)).listed_as = ListedState.FAILED
    await _silence(stage, [speaks, *others])
    await stage.play(2 * AN_HOUR, step=300)
    assert await stage.state(speaks) == "ended"
    assert [await stage.state(lease) for lease in others] == ["ready"] * 4, "an operator has to look"
    await stage.finish()


async def test_a_machine_that_stopped_by_itself_counts_as_stopped_after_an_hour_and_can_be_started(
    stage: Stage,
) -> None:
    lease, _ = await ready_leases(stage, 2, seconds=60)
    machine = await _machine(stage, lease)
    last_seen = stage.clock.now()
    stage.clock.advance(2)
    machine.stopped = True
    await _silence(stage, [lease])
    await stage.play(SILENT_AFTER.total_seconds() + 60, step=60)
    doubt = (await _status(stage, lease)).unconfirmed
    assert doubt is not None
    assert "'stopped'" in doubt.why
    await stage.play(AN_HOUR, step=300)
    overview = (await stage.shown(lease)).overview
    assert overview.power is not None
    assert overview.power.state is PowerState.OFF
    assert overview.lease.switched_at == (last_seen,), "its price while stopped, from the beginning"
    assert (await _status(stage, lease)).unconfirmed is None
    await stage.play(AN_HOUR, step=300)
    assert await stage.state(lease) == "ready"
    stored = (await stage.machines(lease))[-1]
    assert (stored.down_since, stored.provider_state) == (None, "stopped")
    await stage.check()
    await stage.finish()


async def test_a_stop_or_a_start_of_a_machine_that_is_down_counts_it_as_stopped_from_the_beginning(
    stage: Stage,
) -> None:
    stop, start, reboot, left = leases = await ready_leases(stage, 4, seconds=60)
    last_seen = stage.clock.now()
    stage.clock.advance(2)
    for lease in leases:
        (await _machine(stage, lease)).stopped = True
    await stage.play(600, step=60)
    await asked(stage, left, PowerAction.STOP)
    await stage.release(left)
    for lease, action in ((stop, PowerAction.STOP), (start, PowerAction.START), (reboot, PowerAction.REBOOT)):
        await asked(stage, lease, action)
    started = stage.clock.now()
    await stage.play(120, step=2)
    shown = {lease.id: (await stage.shown(lease)).overview for lease in (stop, start, reboot)}
    powers = [overview.power.state for overview in shown.values() if overview.power is not None]
    assert powers == [PowerState.OFF, PowerState.ON, PowerState.ON]
    assert shown[stop.id].lease.switched_at == (last_seen,)
    off, on = shown[start.id].lease.switched_at
    assert off == last_seen
    assert timedelta() < on - started < timedelta(seconds=60)
    assert shown[reboot.id].lease.switched_at == (), "nobody reboots it: it is down as before"
    down = [(await stage.machines(lease))[-1].down_since is not None for lease in (stop, start, reboot)]
    assert down == [False, False, True]
    billed_until = (await stage.lease_row(left)).billed_until
    assert billed_until is not None
    assert billed_until - last_seen < timedelta(minutes=1)
    await stage.check()
    await stage.finish()


async def test_a_stopped_machine_that_its_provider_calls_failed_costs_nothing_and_is_kept(
    stage: Stage,
) -> None:
    lease, other = await ready_leases(stage, 2, seconds=60)
    machine = await _machine(stage, lease)
    await asked(stage, lease, PowerAction.STOP)
    await stage.play(120, step=2)
    (stopped_at,) = (await stage.lease_row(lease)).switched_at
    await _silence(stage, [lease])
    last_seen = stage.clock.now()
    stage.clock.advance(2)
    machine.failed = True
    await stage.play(2 * AN_HOUR, step=300)
    assert await stage.state(lease) == "ready", "its disk is its customer's"
    doubt = (await _status(stage, lease)).unconfirmed
    assert doubt is not None
    assert "'failed'" in doubt.why
    machine.failed = False
    await stage.play(10)
    back = stage.clock.now()
    row = await stage.lease_row(lease)
    assert (row.switched_at, row.paused_at[0]) == ((stopped_at,), last_seen)
    assert back - row.paused_at[1] < timedelta(seconds=20)
    assert (await _status(stage, lease)).unconfirmed is None

    stage.clock.advance(2)
    machine.failed = True
    await stage.play(2 * AN_HOUR, step=300)
    await asked(stage, lease, PowerAction.START)
    await stage.play(30, step=2)
    assert await stage.state(lease) == "ready", "its start is under way"
    machine.failed = False
    await stage.play(120, step=2)
    row = await stage.lease_row(lease)
    assert len(row.paused_at) == 4
    assert len(row.switched_at) == 2, "it runs at its full price"
    assert row.switched_at[1] >= row.paused_at[3] - timedelta(seconds=20)
    await stage.release(lease)
    await stage.release(other)
    await stage.check()
    await stage.finish()


async def test_a_stopped_machine_that_runs_again_after_it_was_called_failed_is_billed_from_then_on(
    stage: Stage,
) -> None:
    lease, other = await ready_leases(stage, 2, seconds=60)
    machine = await _machine(stage, lease)
    await asked(stage, lease, PowerAction.STOP)
    await stage.play(120, step=2)
    last_seen = stage.clock.now()
    stage.clock.advance(2)
    machine.failed = True
    await stage.play(600, step=60)
    machine.failed = machine.stopped = False
    again = stage.clock.now()
    await stage.play(180, step=2)
    row = await stage.lease_row(lease)
    assert row.paused_at[0] == last_seen
    assert (len(row.paused_at), len(row.switched_at)) == (2, 2)
    assert all(moment - again < timedelta(seconds=60) for moment in (row.paused_at[1], row.switched_at[1]))
    await stage.release(lease)
    await stage.release(other)
    await stage.check()
    await stage.finish()


async def _notices(stage: Stage) -> int:
    async with stage.db.reading() as connection:
        return len(await rows(connection, text("SELECT 1 FROM notices")))


async def _flap(stage: Stage, machine: FakeMachine) -> None:
    """For three hours every second list shows the machine as failed: lists come fast at first, and then slowly."""
    for turn, seconds in enumerate([10.0] * 90 + [300.0] * 33):
        machine.failed = turn % 2 == 0
        for loop in ("observe_machines", "change_power", "judge_health"):
            await stage.run(loop)
        stage.clock.advance(seconds)
    machine.failed = False


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_machine_whose_provider_changes_its_word_with_every_list_is_down_until_that_ends(
    stage: Stage, stopped: bool
) -> None:
    lease, other = await ready_leases(stage, 2, seconds=60)
    if stopped:
        await asked(stage, lease, PowerAction.STOP)
        await stage.play(120, step=2)
    machine, before = await _machine(stage, lease), await _notices(stage)
    await _flap(stage, machine)
    told = await _notices(stage) - before
    story = await stage.story(lease)
    assert (story.count("machine machine_down"), story.count("machine machine_up")) == (2, 1), (
        "the first downtime ended at once"
    )
    assert told <= 3, "lost, recovered, lost"
    assert await stage.state(lease) == "ready", "no hour passed in which every list called it failed"
    back = stage.clock.now()
    await stage.play(60, step=20)
    doubt = (await _status(stage, lease)).unconfirmed
    assert doubt is not None
    assert doubt.why.endswith("until that has lasted 30 minutes, and then counts from when it began.")
    await stage.play(SETTLED_AFTER.total_seconds(), step=120)
    assert (await _status(stage, lease)).unconfirmed is None
    row = await stage.lease_row(lease)
    assert len(row.paused_at) == 4
    assert abs(row.paused_at[-1] - back) <= timedelta(seconds=20), "what ran since then is charged"
    assert len(row.switched_at) == (1 if stopped else 0)
    await stage.release(lease)
    await stage.release(other)
    await stage.check()
    await stage.finish()


async def test_one_more_list_that_calls_it_failed_starts_the_half_hour_anew_and_ends_nothing(
    stage: Stage,
) -> None:
    lease, _ = await ready_leases(stage, 2, seconds=60)
    machine = await _machine(stage, lease)
    await _silence(stage, [lease])
    await _flap(stage, machine)
    for _ in range(3):
        await stage.play(SETTLED_AFTER.total_seconds() - 240, step=60)
        machine.failed = True
        await stage.play(30, step=10)
        machine.failed = False
    assert (await _status(stage, lease)).unconfirmed is not None
    assert await stage.state(lease) == "ready"
    assert (await stage.story(lease)).count("machine machine_down") == 2
    await stage.play(SETTLED_AFTER.total_seconds() + 120, step=60)
    assert (await _status(stage, lease)).unconfirmed is None
    await stage.check()
    await stage.finish()


async def test_a_machine_that_lists_miss_again_and_again_is_told_to_be_lost_once(stage: Stage) -> None:
    lease, *_ = await ready_leases(stage, 4, seconds=60)
    machine, before = await _machine(stage, lease), await _notices(stage)
    listed_from = machine.listed_from
    for turn in range(60):
        machine.listed_from = listed_from if turn % 6 < 3 else None
        for loop in ("observe_machines", "collect_heartbeats", "judge_health"):
            await stage.run(loop)
        stage.clock.advance(10)
    assert await stage.state(lease) == "ready"
    assert await _notices(stage) - before == 3, "lost, listed again, and lost until that ends"
    machine.listed_from = listed_from
    await stage.play(SETTLED_AFTER.total_seconds() + 60, step=60)
    assert await _notices(stage) - before == 4
    await stage.check()
    await stage.finish()


async def test_a_machine_that_works_although_its_provider_calls_it_failed_is_billed_as_far_as_we_saw_it_work(
    stage: Stage,
) -> None:
    """Otherwise whoever can bring a provider to call a machine failed would have it for nothing."""
    for word in (ListedState.FAILED, ListedState.OFF_OR_FAILED, ListedState.STOPPED):
        lease, _ = await ready_leases(stage, 2, seconds=60)
        machine, last_seen = await _machine(stage, lease), stage.clock.now()
        stage.clock.advance(2)
        machine.listed_as = word
        await stage.play(1.5 * AN_HOUR, step=60)
        row = await stage.lease_row(lease)
        assert await stage.state(lease) == "ready", "its agent reports"
        unused = row.switched_at if word is ListedState.STOPPED else row.paused_at
        assert unused[0] == last_seen, word
        assert len(unused) == 2, "looked at every few minutes, it was billed ever since"
        assert unused[1] - unused[0] < timedelta(minutes=3), word
        seen = (await stage.machines(lease))[-1].sighted_at
        assert seen is not None
        assert stage.clock.now() - seen < SEEN_LASTS, word
        await _silence(stage, [lease])
        stage.access.machine(str(machine.address)).off = True
        at_most = stage.clock.now()
        await stage.play(SILENT_AFTER.total_seconds() + 600, step=60)
        billed_until = (await stage.lease_row(lease)).billed_until
        if word is ListedState.STOPPED:
            overview = (await stage.shown(lease)).overview
            assert overview.power is not None
            assert overview.power.state is PowerState.OFF
        else:
            assert billed_until is not None, "silent and listed as down for hours"
            assert at_most - SEEN_LASTS < billed_until <= at_most, word
        await stage.check()
    await stage.finish()


async def test_a_machine_that_was_seen_working_again_after_a_while_is_not_billed_for_the_time_in_between(
    stage: Stage,
) -> None:
    lease, _ = await ready_leases(stage, 2, seconds=60)
    machine = await _machine(stage, lease)
    stage.clock.advance(2)
    machine.listed_as = ListedState.FAILED
    await stage.play(900, step=30)
    stage.access.machine(str(machine.address)).off = True
    off = stage.clock.now()
    await stage.play(1_800, step=60)
    stage.access.machine(str(machine.address)).off = False
    on = stage.clock.now()
    await stage.play(900, step=30)
    paused = (await stage.lease_row(lease)).paused_at
    assert len(paused) == 4
    assert off - SEEN_LASTS < paused[2] <= off
    assert timedelta() < paused[3] - on < timedelta(minutes=3)
    await stage.release(lease)
    await stage.check()
    await stage.finish()
