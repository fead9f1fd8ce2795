"""Spot leases that get another machine when their provider takes one back: one lease, one bill with a pause in it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.failure import FailReason
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.status import project
from control_plane.services.lease_changes import Changes, change
from providers.fake import Fault
from tests.scenario.test_spot import REPLACED, SPOT, SPOT_PRICE, WANTED, killed, listed
from tests.scenario.test_spot import stage as stage  # noqa: PLC0414 - a fixture that pytest finds by its name
from tests.support.rows import rows
from tests.support.stage import CUSTOMER, Stage

pytestmark = pytest.mark.database

_CHARGES = text("""
SELECT machine_id, started_at, ended_at, unit_seconds, nano_per_unit_hour, stopped FROM charges ORDER BY number
""")


async def ready(stage: Stage, terms: LeaseTerms = REPLACED) -> Lease:
    lease = await stage.lease(await listed(stage), WANTED, terms=terms)
    await stage.play_until(lease, "ready", seconds_max=90)
    return await stage.lease_row(lease)


def sold_out(stage: Stage, *, left: int = 0) -> None:
    stage.cloud.stock[f"{SPOT.native_type}:spot", SPOT.native_region] = left


async def evicted(stage: Stage, lease: Lease) -> Lease:
    """Take its machine back, and let it wait for another one, of which there is none."""
    stage.clock.advance(3)
    (machine,) = stage.cloud.alive()
    stage.cloud.evict(machine.provider_ref)
    sold_out(stage)
    await stage.play(30, step=5, without={"meter_usage"})
    row = await stage.lease_row(lease)
    assert await stage.state(lease) == "placing"
    assert row.replaced_since is not None
    return row


async def test_a_replaced_lease_is_billed_until_the_last_good_list_and_again_from_its_next_machine_on(
    stage: Stage,
) -> None:
    lease = await ready(stage)
    await stage.play(70 * 60, step=1_050)
    last_seen = stage.clock.now()
    waiting = await evicted(stage, lease)
    assert (waiting.paused_at, waiting.billed_until, waiting.end_reason) == ((last_seen,), None, None)
    assert (await stage.attempts(lease))[0].fail_reason is FailReason.EVICTED
    message = project(waiting, None, stage.clock.now()).message
    assert message.startswith("Its machine was taken back or taken away, and nothing is billed until")
    await stage.play(20 * 60, step=300, without={"meter_usage"})
    sold_out(stage, left=1)
    while await stage.state(lease) != "ready":  # The meter comes late, and counts for the right machine.
        await stage.play(30, step=10, without={"meter_usage"})
    again = await stage.lease_row(lease)
    assert (again.ready_at, again.nano_per_hour, len(again.paused_at)) == (waiting.ready_at, SPOT_PRICE, 2)
    await stage.play(60 * 60, step=1_200)
    await stage.release(lease)
    await stage.finish()
    async with stage.db.reading() as connection:
        charges = await rows(connection, _CHARGES)
    first, *_, second = (machine.id for machine in await stage.machines(lease))
    paused, resumed = again.paused_at
    for machine_id, since, until in (
        (first, waiting.ready_at, paused),
        (second, resumed, (await stage.lease_row(lease)).billed_until),
    ):
        of_machine = [charge for charge in charges if charge.machine_id == machine_id]
        assert timedelta() <= of_machine[0].started_at - since < timedelta(seconds=1)
        assert timedelta() <= until - of_machine[-1].ended_at < timedelta(seconds=1)
        seconds = (of_machine[-1].ended_at - of_machine[0].started_at).total_seconds()
        assert sum(charge.unit_seconds for charge in of_machine) == seconds
    assert {(charge.nano_per_unit_hour, charge.stopped) for charge in charges} == {(SPOT_PRICE, False)}
    story = await stage.story(lease)
    assert (story.count("lease replacing"), story.count("lease verified")) == (1, 2)


async def test_a_lease_that_ends_between_two_machines_is_billed_until_the_first_one_ended(
    stage: Stage,
) -> None:
    """Released; waited as long as it may, counted from the eviction; and by its own limit."""
    for terms, seconds, reason in (
        (replace(REPLACED, wait_timeout_seconds=900), 1_200, EndReason.NO_CAPACITY),
        (replace(REPLACED, auto_release=AutoRelease(after_seconds=3_600)), 2_400, EndReason.AUTO_RELEASED),
        (REPLACED, 0, EndReason.RELEASED),
    ):
        sold_out(stage, left=1)
        lease = await ready(stage, terms)
        await stage.play(20 * 60, step=300)
        waiting = await evicted(stage, lease)
        await stage.play(seconds / 2, step=150)
        assert await stage.state(lease) == "placing", reason
        await stage.play(seconds / 2 + 60, step=150)
        if reason is EndReason.RELEASED:
            await stage.release(lease)
        await stage.play(60, step=20)
        row = await stage.lease_row(lease)
        assert (row.end_reason, row.billed_until) == (reason, waiting.replaced_since)
        await stage.check_finished()


async def test_a_lease_that_is_released_while_its_next_machine_starts_pays_for_the_first_one_alone(
    stage: Stage,
) -> None:
    lease = await ready(stage)
    waiting = await evicted(stage, lease)
    async with stage.api.db.transaction(lease.organization_id) as connection:
        larger = Changes(sku="h100x1-proven")
        changed = await change(
            connection,
            stage.api,
            lease.organization_id,
            lease.id,
            larger,
            actor=CUSTOMER,
            reach=EVERYWHERE,
        )
    assert isinstance(changed, Refused)
    assert changed.code is RefusalCode.LEASE_HAS_MACHINE
    sold_out(stage, left=1)
    stage.cloud.faults.script("launch", Fault.NEVER_BOOTS)
    while await stage.state(lease) != "starting":
        await stage.play(30, step=10)
    await stage.play(20, step=10)
    await stage.release(lease)
    await stage.finish()
    row = await stage.lease_row(lease)
    assert (row.billed_until, row.end_reason) == (waiting.replaced_since, EndReason.RELEASED)


async def test_a_loop_killed_before_any_call_replaces_a_machine_once(stage: Stage) -> None:
    lease = await ready(stage)
    for number, (loop, at) in enumerate((("observe_machines", 1), ("launch_machines", 2)), 1):
        stage.clock.advance(3)
        (machine,) = stage.cloud.alive()
        stage.cloud.evict(machine.provider_ref)
        if loop == "launch_machines":
            await stage.run("observe_machines")
            while await stage.state(lease) != "starting":
                await stage.play(60, step=30, without={loop})
        assert await killed(stage, loop, at)
        await stage.check()
        await stage.play(20, step=10)
        await stage.play_until(lease, "ready", seconds_max=900, step=30)
        await stage.check()
        assert (await stage.story(lease)).count("lease replacing") == number
    assert {machine.order.spot for machine in stage.cloud.machines.values()} == {True}
    await stage.release(lease)
    await stage.finish()


async def test_only_a_spot_lease_is_replaced(stage: Stage) -> None:
    refused = await stage.try_lease(await listed(stage), CapacityRequest("h100x1"), terms=REPLACED)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.REPLACEMENT_NEEDS_SPOT
