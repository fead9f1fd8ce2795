"""A provider takes a machine back: announced, withdrawn, without a word, at every stage of a lease."""

from datetime import timedelta

import pytest

from control_plane.db.engine import Database
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import ProviderRef
from control_plane.domain.journal import Note
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.machine import MachineState
from providers.fake import Fault
from providers.fake import Settings as FakeSettings
from reconciler.worlds.complete import CompleteWorld
from tests.support.clock import Clock
from tests.support.crash import Crash
from tests.support.stage import Stage, set_stage

pytestmark = pytest.mark.database

ANNOUNCED, WITHDRAWN = f"machine {Note.EVICTION_ANNOUNCED}", f"machine {Note.EVICTION_WITHDRAWN}"


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    return await set_stage(db, clock, api_db=api_db, settings=FakeSettings(boot_seconds=20.0))


async def a_ready_lease(stage: Stage) -> Lease:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(4)
    return lease


async def ref_of(stage: Stage, lease: Lease) -> ProviderRef:
    ref = (await stage.machines(lease))[-1].provider_ref
    assert ref is not None
    return ref


async def counted(stage: Stage, lease: Lease) -> tuple[int, int]:
    """How often the lease was told of an eviction, and of one that does not come."""
    story = await stage.story(lease)
    return story.count(ANNOUNCED), story.count(WITHDRAWN)


async def reasons(stage: Stage, lease: Lease) -> list[FailReason | None]:
    return [attempt.fail_reason for attempt in await stage.attempts(lease)]


async def test_a_notice_is_an_event_once_and_changes_nothing_until_the_machine_is_taken(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    ref = await ref_of(stage, lease)
    stage.cloud.announce_eviction(ref)
    announced_at = stage.clock.now()
    await stage.play(120, step=10)
    assert await counted(stage, lease) == (1, 0)
    assert await stage.state(lease) == "ready"
    assert len(stage.cloud.alive()) == 1
    last_seen = stage.clock.now()
    stage.clock.advance(1)
    stage.cloud.evict(ref)
    stage.clock.advance(40)
    await stage.play_until(lease, "ended", seconds_max=120)
    row = await stage.lease_row(lease)
    assert (row.end_reason, row.billed_until) == (EndReason.EVICTED, last_seen)
    at = announced_at.isoformat(timespec="seconds")
    assert row.end_why == f"its provider took it back, as announced at {at}"
    assert await reasons(stage, lease) == [FailReason.EVICTED]
    assert "lease evicted" in await stage.story(lease)
    await stage.check()
    await stage.finish()


async def test_a_withdrawn_notice_is_told_ten_minutes_later_and_a_second_one_again(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    ref = await ref_of(stage, lease)
    stage.cloud.announce_eviction(ref)
    await stage.play(60, step=10)
    stage.cloud.withdraw_eviction(ref)
    await stage.play(480, step=40)
    assert await counted(stage, lease) == (1, 0)
    await stage.play(120, step=40)
    assert await counted(stage, lease) == (1, 1)
    machine = (await stage.machines(lease))[-1]
    assert machine.eviction_announced_at is not None
    assert machine.eviction_withdrawn_at is not None
    assert machine.eviction_withdrawn_at - machine.eviction_announced_at >= timedelta(minutes=10)
    stage.cloud.announce_eviction(ref)
    await stage.play(10)
    assert await counted(stage, lease) == (2, 1)
    assert await stage.state(lease) == "ready"
    await stage.check()
    await stage.finish()


async def test_a_machine_that_is_taken_without_a_word_is_billed_through_the_last_list_that_showed_it(
    stage: Stage,
) -> None:
    lease = await a_ready_lease(stage)
    await stage.play(3_000, step=300)
    last_seen = stage.clock.now()
    stage.clock.advance(5)
    stage.cloud.evict(await ref_of(stage, lease))
    await stage.play_until(lease, "ended", seconds_max=120)
    row = await stage.lease_row(lease)
    assert (row.end_reason, row.billed_until) == (EndReason.EVICTED, last_seen)
    assert row.end_why == "its provider took it back, without notice"
    assert await counted(stage, lease) == (0, 0)
    await stage.check()
    await stage.finish()


async def test_a_machine_that_only_disappears_was_not_evicted_whatever_was_announced(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    other = await stage.lease(lease.organization_id)  # An empty list would be odd.
    await stage.play_until(other, "ready", seconds_max=90)
    ref = await ref_of(stage, lease)
    stage.cloud.announce_eviction(ref)
    await stage.play(10)
    stage.cloud.disappear(ref)
    await stage.play_until(lease, "ended", seconds_max=900, step=20)
    assert (await stage.lease_row(lease)).end_reason is EndReason.MACHINE_LOST
    assert await reasons(stage, lease) == [FailReason.VANISHED]
    await stage.finish()


async def test_a_machine_that_is_taken_while_it_is_set_up_is_replaced_and_blocks_no_offer(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "starting")
    while not stage.cloud.alive():
        await stage.play(2)
    (machine,) = stage.cloud.alive()
    await stage.play(4)
    stage.cloud.evict(machine.provider_ref)
    await stage.play_until(lease, "ready", seconds_max=400)
    assert await reasons(stage, lease) == [FailReason.EVICTED, None]
    other = await stage.lease(lease.organization_id)
    await stage.play_until(other, "ready", seconds_max=90)
    assert await reasons(stage, other) == [None]
    await stage.finish()


async def test_an_eviction_while_the_machine_ends_changes_no_reason(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    ref = await ref_of(stage, lease)
    stage.cloud.announce_eviction(ref)
    await stage.play(4)
    stage.cloud.faults.always("terminate", Fault.NOT_YET)
    await stage.release(lease)
    await stage.play(10)
    assert (await stage.machines(lease))[-1].state is MachineState.TERMINATING
    stage.cloud.evict(ref)
    await stage.play_until(lease, "ended", seconds_max=120)
    assert (await stage.lease_row(lease)).end_reason is EndReason.RELEASED
    assert FailReason.EVICTED not in await reasons(stage, lease)
    assert (await stage.machines(lease))[-1].fail_reason is None
    await stage.finish()


async def test_nothing_is_concluded_while_the_lists_fail_and_all_of_it_afterwards(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    last_seen = stage.clock.now()
    stage.clock.advance(1)
    stage.cloud.faults.always("inventory", Fault.LISTING_FAILS)
    ref = await ref_of(stage, lease)
    stage.cloud.announce_eviction(ref)
    stage.cloud.evict(ref)
    await stage.play(30)
    assert await stage.state(lease) == "ready"
    stage.cloud.faults.clear()
    await stage.play_until(lease, "ended", seconds_max=120)
    row = await stage.lease_row(lease)
    assert (row.end_reason, row.billed_until) == (EndReason.EVICTED, last_seen)
    await stage.finish()


async def test_a_machine_whose_status_nobody_understands_keeps_its_notice(stage: Stage) -> None:
    lease = await a_ready_lease(stage)
    stage.cloud.announce_eviction(await ref_of(stage, lease))
    await stage.play(4)
    stage.cloud.faults.always("inventory", Fault.UNKNOWN_STATUSES)
    await stage.play(900, step=60)
    assert await counted(stage, lease) == (1, 0)
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_a_loop_killed_before_any_call_tells_a_notice_once_and_ends_the_lease_once(
    stage: Stage,
) -> None:
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id) for _ in range(CALLS + 1)]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=90)
    for at, lease in enumerate(leases, 1):
        ref = await ref_of(stage, lease)
        stage.cloud.announce_eviction(ref)
        await killed(stage, at)
        await observed(stage)
        assert await counted(stage, lease) == (1, 0), at
        last_seen = stage.clock.now()
        stage.cloud.evict(ref)
        assert await killed(stage, at) is (at <= CALLS), at
        await observed(stage)
        row = await stage.lease_row(lease)
        assert (row.end_reason, row.billed_until) == (EndReason.EVICTED, last_seen), at
        assert (await stage.story(lease)).count("lease evicted") == 1, at
    await stage.check()


CALLS = 5
"""How many calls an activation makes that finds an eviction. Killed before a call is killed after the one before it."""


async def killed(stage: Stage, at: int) -> bool:
    """Run one activation that is killed before this call; False when it makes fewer."""
    stage.clock.advance(2)

    async def activation(world: CompleteWorld) -> None:
        await stage.run("observe_machines", world=world)

    return await Crash(at=at, when="before").kills(activation, stage.replica("doomed"))


async def observed(stage: Stage) -> None:
    stage.clock.advance(2)
    await stage.run("observe_machines")
