"""Children of machines at a provider: what is deleted, when, and what is never touched."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import account_requests, child_costs, children, organizations
from control_plane.db.engine import Database
from control_plane.db.rows import read
from control_plane.domain.child import DELETED_PER_RUN_MAX, Child
from control_plane.domain.child_cost import ChildCost
from control_plane.domain.freeze import THAW_AFTER, THAW_LISTS
from control_plane.domain.ids import LaunchKey, OrganizationId, launch_key
from control_plane.domain.journal import Note
from control_plane.world import uuid7
from providers import verda
from providers.base import Needed
from providers.fake import CAPABILITIES, Fault
from providers.fake import Settings as FakeSettings
from providers.guard import Guard
from providers.pacing import OneProcessBudget
from tests.support.clock import Clock
from tests.support.stage import FAKE, Stage, set_stage

pytestmark = pytest.mark.database

THEIRS = launch_key("ffffffff", UUID(int=7))
SECOND = "fake/second"
OPERATORS = OrganizationId(UUID(int=1))
_GONE_AT = text("SELECT gone_at FROM machines WHERE id = :id")


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    """A provider whose launches make a script before the machine and a volume with it."""
    async with db.transaction(OPERATORS) as connection:
        await organizations.insert(connection, OPERATORS, "operators", platform=True, now=clock.now())
    return await set_stage(db, clock, api_db=api_db, settings=FakeSettings(makes_children=True))


def kinds(stage: Stage, key: LaunchKey) -> set[str]:
    return {child.kind for child in stage.cloud.leftovers.values() if child.launch_key == key}


def an_unknown_key(stage: Stage) -> LaunchKey:
    return launch_key(stage.world.installation, uuid7())


async def test_a_script_goes_when_the_machine_is_reached_and_a_volume_when_it_is_certainly_gone(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.run("refresh_offers")
    await stage.run("place_leases")
    await stage.run("launch_machines")
    await stage.run("sweep_children")
    ((machine,),) = [await stage.machines(lease)]
    assert kinds(stage, machine.launch_key) == {"startup_script", "volume"}, "it has not booted yet"
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.play(65, step=5)
    assert kinds(stage, machine.launch_key) == {"volume"}
    assert (await stage.story(lease)).count(f"machine {Note.CHILD_DELETION_REQUESTED}") == 1
    await stage.finish()
    await stage.play(300, step=60)
    assert kinds(stage, machine.launch_key) == {"volume"}, "a late machine may still show"
    await stage.play(720, step=60)
    assert stage.cloud.leftovers == {}


async def test_the_script_of_a_launch_that_bought_nothing_goes_with_its_record(stage: Stage) -> None:
    stage.cloud.faults.script("launch", Fault.NO_CAPACITY)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    refused, kept = await stage.machines(lease)
    await stage.play(65, step=5)
    assert (kinds(stage, refused.launch_key), kinds(stage, kept.launch_key)) == (set(), {"volume"})
    await stage.finish()


async def test_the_volume_of_a_refused_launch_stays_until_the_orphan_that_it_made_is_gone(
    stage: Stage,
) -> None:
    stage.cloud.faults.script("launch", Fault.FALSE_NO_CAPACITY)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    (refused, _) = await stage.machines(lease)
    stage.cloud.faults.always("terminate", Fault.NOT_YET)
    await stage.play(900, step=30)
    assert kinds(stage, refused.launch_key) == {"volume"}, "the orphan still runs on it"
    stage.cloud.faults.clear()
    await stage.play(900, step=30)
    assert stage.cloud.alive(refused.launch_key) == ()
    assert kinds(stage, refused.launch_key) == set()
    await stage.finish()


async def test_children_of_another_installation_or_without_a_record_are_never_touched(stage: Stage) -> None:
    for key in (THEIRS, an_unknown_key(stage)):
        for needed in Needed:
            stage.cloud.plant_child(key, needed, needed)
    (report,) = await stage.run("sweep_children")
    await stage.play(1_800, step=120)
    assert len(stage.cloud.leftovers) == 4
    assert report.acted_on == 0
    (error,) = report.errors
    assert "2 with our launch keys have no record" in error
    assert THEIRS not in error


async def test_a_child_at_another_account_than_its_machines_record_is_never_touched(
    db: Database, clock: Clock
) -> None:
    stage = await set_stage(db, clock, names=("fake", SECOND))
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    (machine,) = await stage.machines(lease)
    for cloud in stage.clouds.values():
        cloud.plant_child(machine.launch_key, "startup_script", Needed.UNTIL_BOOT)
    await stage.play(65, step=5)
    assert {name: len(cloud.leftovers) for name, cloud in stage.clouds.items()} == {
        name: int(name != machine.account) for name in stage.clouds
    }
    await stage.finish()


async def test_a_list_of_children_that_fails_concludes_nothing_and_the_next_run_asks_again(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    stage.clock.advance(60)
    stage.cloud.faults.always("children", Fault.LISTING_FAILS)
    (report,) = await stage.run("sweep_children")
    assert "Unavailable" in report.errors[0]
    assert len(stage.cloud.leftovers) == 2
    stage.cloud.faults.clear()
    stage.clock.advance(60)
    (report,) = await stage.run("sweep_children")
    assert (report.acted_on, report.errors) == (1, [])
    await stage.finish()


async def test_a_deletion_that_is_refused_is_tried_again_and_the_journal_tells_of_it_once(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    for _ in range(3):
        stage.clock.advance(60)
        stage.cloud.faults.script("children", Fault.NONE, Fault.ORDER_REFUSED)
        (report,) = await stage.run("sweep_children")
        assert "OrderRefused" in report.errors[0]
    stage.clock.advance(60)
    (report,) = await stage.run("sweep_children")
    assert report.acted_on == 1
    assert (await stage.story(lease)).count(f"machine {Note.CHILD_DELETION_REQUESTED}") == 1
    await stage.finish()


async def test_one_run_deletes_all_that_it_may_within_the_limits_of_a_real_provider(
    db: Database, api_db: Database, clock: Clock
) -> None:
    stage = await set_stage(
        db,
        clock,
        api_db=api_db,
        capabilities=replace(CAPABILITIES, rate_limits=verda.CAPABILITIES.rate_limits),
    )
    guard = Guard(
        stage.cloud,
        account=FAKE,
        now=clock.now,
        sleep=clock.sleep,
        budget=OneProcessBudget(clock.now),
        pace_in_process=False,
    )
    stage.world = replace(stage.world, accounts={FAKE: guard})
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    ((machine,),) = [await stage.machines(lease)]
    for number in range(DELETED_PER_RUN_MAX):
        stage.cloud.plant_child(machine.launch_key, f"startup_script_{number}", Needed.UNTIL_BOOT)
    clock.advance(60)
    begun = clock.now()
    (report,) = await stage.run("sweep_children")
    assert (report.acted_on, report.errors, report.notes) == (DELETED_PER_RUN_MAX, [], [])
    assert clock.now() - begun < timedelta(seconds=60)
    assert stage.cloud.leftovers == {}
    await stage.finish()


async def test_once_the_provider_takes_no_more_calls_the_rest_waits_for_the_next_run(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    ((machine,),) = [await stage.machines(lease)]
    for number in range(3):
        stage.cloud.plant_child(machine.launch_key, f"startup_script_{number}", Needed.UNTIL_BOOT)
    clock, faults = stage.clock, stage.cloud.faults
    clock.advance(60)
    faults.script("children", Fault.NONE, Fault.NONE, *[Fault.THROTTLED] * 3)
    (report,) = await stage.run("sweep_children")
    assert (report.acted_on, report.errors) == (1, [])
    assert report.notes[0].startswith("3 wait for the next run")
    clock.advance(120)
    (report,) = await stage.run("sweep_children")
    assert report.acted_on == 3
    await stage.finish()


async def test_only_one_replica_lists_the_children_of_an_account_each_minute(stage: Stage) -> None:
    other = stage.replica("other")
    for world in (stage.world, other, other):
        await stage.run("sweep_children", world=world)
    assert stage.cloud.calls_of("children") == 1
    stage.clock.advance(60)
    await stage.run("sweep_children", world=other)
    assert stage.cloud.calls_of("children") == 2


async def _left(stage: Stage) -> int:
    async with stage.db.reading() as connection:
        return len(await children.leftovers(connection, limit=100))


async def test_a_list_of_children_that_is_empty_or_shrunken_deletes_nothing_and_forgets_no_liability(
    stage: Stage,
) -> None:
    """They have no record of ours, so that nothing of ours removes them."""
    keys = [an_unknown_key(stage) for _ in range(10)]
    for key in keys:
        stage.cloud.plant_child(key, "volume", Needed.WHILE_IT_EXISTS)
    await stage.run("sweep_children")
    assert await _left(stage) == 10
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    await stage.play(65, step=5)
    shown, before = dict(stage.cloud.leftovers), await _left(stage)
    (machine,) = await stage.machines(lease)
    for missing in (6, len(shown)):
        stage.cloud.leftovers = dict([*shown.items()][missing:])
        stage.cloud.plant_child(machine.launch_key, "another_script", Needed.UNTIL_BOOT)
        for _ in range(3):
            stage.clock.advance(60)
            (report,) = await stage.run("sweep_children")
            assert "is not believed: The list misses" in report.errors[0]
            assert report.acted_on == 0
        assert await _left(stage) == before
    stage.cloud.leftovers = shown
    stage.clock.advance(60)
    (report,) = await stage.run("sweep_children")
    assert "is not believed" not in report.errors[0]
    assert await _left(stage) == before
    stage.cloud.leftovers = {}
    for _ in range(THAW_LISTS):
        stage.clock.advance(THAW_AFTER.total_seconds() / THAW_LISTS + 60)
        (report,) = await stage.run("sweep_children")
    assert report.errors == [], "such lists have lasted"
    assert await _left(stage) == 0


async def test_the_volumes_of_an_account_that_is_not_armed_are_shown_and_not_deleted(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.play(65, step=5)
    async with stage.db.transaction() as connection:
        await account_requests.disarm(connection, FAKE)
    await stage.release(lease)
    await stage.play(2_400, step=60)
    assert len(stage.cloud.leftovers) == 1
    async with stage.db.reading() as connection:
        (left,) = await children.leftovers(connection, limit=10)
    assert "not armed" in left.why
    async with stage.db.transaction() as connection:
        await account_requests.arm(connection, FAKE, now=stage.clock.now())
    await stage.play(120, step=60)
    assert stage.cloud.leftovers == {}


async def _costs(stage: Stage, seconds_back: float = 86_400) -> list[ChildCost]:
    """What finance reads of what was left behind."""
    until = stage.clock.now()
    async with stage.api.db.reading(OPERATORS) as connection:
        found = [
            child
            async for page in child_costs.of_month(
                connection, since=until - timedelta(seconds=seconds_back), until=until
            )
            for child in page
        ]
    return [child for child in found if child.kind == "volume"]


async def test_what_was_left_behind_is_kept_with_its_cost_when_it_is_gone(stage: Stage) -> None:
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.play(65, step=5)
    assert await _costs(stage) == [], "its machine may need it"
    await stage.release(lease)
    await stage.play(2_400, step=30)
    assert stage.cloud.leftovers == {}
    (left,) = await _costs(stage)
    (machine,) = await stage.machines(lease)
    assert (left.machine_id, left.lease_id, left.organization_id) == (
        machine.id,
        lease.id,
        lease.organization_id,
    )
    async with stage.db.reading() as connection:
        assert [left.left_at] == await read(connection, _GONE_AT, datetime, id=machine.id)
    assert left.gone_at is not None
    assert left.last_seen_at is not None
    assert left.last_seen_at < left.gone_at <= left.last_seen_at + timedelta(seconds=90)
    seconds = int((left.gone_at - left.left_at).total_seconds())
    assert seconds > 600, "it was deleted when a late machine would have shown"
    cost = left.cost(left.left_at, stage.clock.now())
    assert cost == pytest.approx(10_000_000 * seconds / 3_600, abs=10_000_000 / 3_600)
    await stage.finish()


async def test_a_child_that_overlapping_pages_list_twice_is_one_child(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await stage.lease(await stage.organization())
    once = stage.cloud.children

    async def twice() -> tuple[Child, ...]:
        return (await once()) * 2

    monkeypatch.setattr(stage.cloud, "children", twice)
    await stage.play_until(lease, "ready", seconds_max=30)
    await stage.release(lease)
    await stage.play(2_400, step=30)
    assert stage.cloud.leftovers == {}
    (left,) = await _costs(stage)
    assert left.gone_at is not None
    await stage.finish()


async def test_a_list_that_is_not_believed_ends_no_cost_and_what_is_listed_again_was_there_all_the_time(
    stage: Stage,
) -> None:
    keys = [an_unknown_key(stage) for _ in range(4)]
    for key in keys:
        stage.cloud.plant_child(key, "volume", Needed.WHILE_IT_EXISTS)
    await stage.run("sweep_children")
    first = stage.clock.now()
    shown = dict(stage.cloud.leftovers)
    stage.cloud.leftovers = {}
    stage.clock.advance(60)
    await stage.run("sweep_children")
    assert [(child.left_at, child.gone_at) for child in await _costs(stage)] == [(first, None)] * 4
    for _ in range(THAW_LISTS):
        stage.clock.advance(THAW_AFTER.total_seconds() / THAW_LISTS + 60)
        await stage.run("sweep_children")
    gone = await _costs(stage)
    assert [child.last_seen_at for child in gone] == [first] * 4, "no list showed them since"
    assert all(child.gone_at and child.gone_at - first >= THAW_AFTER for child in gone)
    stage.cloud.leftovers = shown
    stage.clock.advance(60)
    await stage.run("sweep_children")
    assert [(child.left_at, child.gone_at, child.machine_id) for child in await _costs(stage)] == [
        (first, None, None)
    ] * 4


async def test_while_a_list_shows_the_same_nothing_is_written_and_a_price_that_is_unknown_ends_nothing(
    stage: Stage,
) -> None:
    child = stage.cloud.plant_child(an_unknown_key(stage), "volume", Needed.WHILE_IT_EXISTS)
    unpriced = replace(child, ref="volume-unpriced", cost_nano_per_hour=None)
    stage.cloud.leftovers[unpriced.ref] = unpriced
    await stage.run("sweep_children")

    async def version() -> list[str]:
        async with stage.db.reading() as connection:
            return await read(connection, text("SELECT xmin || ' ' || xmax FROM priced_children"), str)

    before = await version()
    assert len(before) == 1, "nobody tells what the other one costs"
    for price in (child.cost_nano_per_hour, None):
        stage.cloud.leftovers[child.ref] = replace(child, cost_nano_per_hour=price)
        stage.clock.advance(60)
        await stage.run("sweep_children")
        assert await version() == before
