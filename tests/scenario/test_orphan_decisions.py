"""What operators decide about orphans: the loop obeys the last decision, and no other machine pays for it."""

import dataclasses
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import OrganizationId, ProviderRef
from control_plane.domain.lease import Lease
from control_plane.domain.orphan import Choice, HeldCode
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import orphans
from control_plane.services.orphans import ListedOrphan
from providers.fake import FakeMachine
from tests.support.rows import rows
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
OPERATOR = Actor(ActorKind.OPERATOR, "key_1")
PLATFORM = OrganizationId(UUID(int=1))
JOURNAL = text("SELECT why FROM journal WHERE event = 'machine_exchanged'")


async def _listed(stage: Stage) -> dict[str, ListedOrphan]:
    world = dataclasses.replace(stage.api, db=stage.db)
    found = await orphans.page(world, PLATFORM, gone=False, after=None, limit=1_000)
    return {orphan.provider_ref: orphan for orphan in found}


async def _decide(stage: Stage, choice: Choice, *machines: FakeMachine) -> Refused | None:
    refs = [machine.provider_ref for machine in machines]
    async with stage.db.transaction() as connection:
        decided = await orphans.decide(
            connection, stage.api, FAKE, refs, choice, why="ticket 4711", actor=OPERATOR
        )
    return decided if isinstance(decided, Refused) else None


async def _accepted(stage: Stage, lease: Lease) -> FakeMachine:
    """The machine of the lease, as soon as the provider has accepted its order."""
    while True:
        (record,) = await stage.machines(lease)
        if record.provider_ref is not None:
            return stage.cloud.machines[record.provider_ref]
        await stage.play(1)


async def test_an_orphan_is_left_until_that_is_revoked_and_its_cost_is_shown_meanwhile(stage: Stage) -> None:
    left, other = await stage.plant(), await stage.plant()
    await stage.play(10)
    await _decide(stage, Choice.LEAVE, left)
    await stage.play(600, step=20)
    assert [left.ended_at is None, other.ended_at is None] == [True, False]
    shown = (await _listed(stage))[left.provider_ref]
    assert (shown.held_code, shown.choice, shown.decided_by) == (HeldCode.LEFT, Choice.LEAVE, "key_1")
    await _decide(stage, Choice.REVOKE, left)
    await stage.play(40, step=20)
    assert left.ended_at is not None
    await stage.finish()


async def test_an_orphan_that_is_to_end_ends_at_once_and_before_its_watch_is_over(stage: Stage) -> None:
    now, watched = await stage.plant(), await stage.plant()
    await stage.run("observe_machines")
    await _decide(stage, Choice.END, now)
    await stage.run("collect_orphans")
    assert [now.ended_at is None, watched.ended_at is None] == [False, True]
    assert (await _listed(stage))[watched.provider_ref].held_code is HeldCode.WATCHED
    await stage.play(200, step=20)
    await stage.finish()


async def test_a_decision_that_changes_while_the_loop_works_is_obeyed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody leaves an orphan after the loop has read it, while the provider takes its time with another."""
    machines = {machine.provider_ref: machine for machine in (await stage.plant(), await stage.plant())}
    await stage.play(130, step=10, without=["collect_orphans"])
    provider = stage.world.accounts[FAKE]
    terminate, spared = provider.terminate, list[FakeMachine]()

    async def slowly(ref: ProviderRef) -> None:
        if not spared:
            spared.extend(machine for other, machine in machines.items() if other != ref)
            await _decide(stage, Choice.LEAVE, *spared)
        await terminate(ref)

    monkeypatch.setattr(provider, "terminate", slowly)
    await stage.run("collect_orphans")
    assert [machine.ended_at is None for machine in machines.values()].count(True) == 1
    assert spared[0].ended_at is None
    monkeypatch.undo()
    await _decide(stage, Choice.END, *spared)
    await stage.play(60, step=20)
    await stage.finish()


async def test_a_booting_record_whose_machine_is_not_listed_adopts_the_one_that_is(stage: Stage) -> None:
    """The provider answers with one machine and lists another one, made for the same order."""
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, boot_seconds=40.0)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "starting", seconds_max=30)
    first = await _accepted(stage, lease)
    stage.cloud.disappear(first.provider_ref)
    second = stage.plant_twin(first)
    await stage.play(4)
    shown = (await _listed(stage))[second.provider_ref]
    assert (shown.origin, shown.not_adopted_why) == ("second_machine", None)
    assert await _decide(stage, Choice.ADOPT, second) is None
    await stage.play(16, step=4)
    assert await _listed(stage) == {}
    await stage.play_until(lease, "ready", seconds_max=90)
    (record,) = await stage.machines(lease)
    assert record.provider_ref == second.provider_ref
    async with stage.db.reading() as connection:
        ((why,),) = await rows(connection, JOURNAL)
    assert why.endswith(f"has {second.provider_ref} in place of {first.provider_ref}: ticket 4711")
    await stage.finish()


async def test_a_record_that_has_moved_on_adopts_nothing_and_the_orphan_is_kept_until_decided(
    stage: Stage,
) -> None:
    stage.cloud.settings = dataclasses.replace(stage.cloud.settings, boot_seconds=40.0)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "starting", seconds_max=30)
    first = await _accepted(stage, lease)
    stage.cloud.hide(first.provider_ref)
    second = stage.plant_twin(first)
    await stage.play(4)
    assert await _decide(stage, Choice.ADOPT, second) is None
    stage.cloud.show(first.provider_ref)
    await stage.play_until(lease, "ready", seconds_max=90)
    refused = await _decide(stage, Choice.ADOPT, second)
    assert refused is not None
    assert refused.code is RefusalCode.ORPHAN_NOT_ADOPTABLE
    await stage.play(300, step=20)
    assert second.ended_at is None
    assert (await _listed(stage))[second.provider_ref].held_code is HeldCode.ADOPTING
    assert (await stage.machines(lease))[0].provider_ref == first.provider_ref
    await _decide(stage, Choice.END, second)
    await stage.play(40, step=20)
    assert second.ended_at is not None
    await stage.finish()
