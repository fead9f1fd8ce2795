"""Leases that are released by themselves: when, why, and what they cost however late the loop comes."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.lease import Lease
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.request import LeaseTerms
from control_plane.domain.tariff import billing_start
from control_plane.services import billing
from tests.support.stage import H100, Stage

pytestmark = pytest.mark.database
HELD = text("SELECT id FROM leases WHERE id = :id FOR UPDATE")
HOUR = timedelta(hours=1)
CENTS_90 = Nano(9 * NANO_PER_USD // 10)
"""A quarter of an hour of H100."""


async def _ready(stage: Stage, limits: AutoRelease) -> Lease:
    lease = await stage.lease(await stage.organization(), terms=LeaseTerms(auto_release=limits))
    await stage.play_until(lease, "ready")
    return await stage.lease_row(lease)


async def test_a_lease_is_released_after_its_time_to_live_which_counts_from_ready(stage: Stage) -> None:
    lease = await _ready(stage, AutoRelease(after_seconds=600))
    assert lease.ready_at is not None
    assert lease.release_at == lease.ready_at + timedelta(seconds=600)
    await stage.play(560, step=20)
    await stage.play(30)
    assert await stage.state(lease) == "ready"
    await stage.play(14)
    ended = await stage.lease_row(lease)
    assert (ended.end_reason, ended.billed_until) == ("auto_released", lease.release_at)
    assert "600 seconds after it was ready" in (ended.end_why or "")
    assert "lease auto_released" in await stage.story(lease)
    await stage.finish()


async def test_a_lease_never_costs_more_than_its_limit_although_the_loops_come_hours_late(
    stage: Stage,
) -> None:
    lease = await _ready(stage, AutoRelease(spend_nano=CENTS_90))
    assert lease.ready_at is not None
    assert lease.release_at == billing_start(lease.ready_at) + HOUR / 4
    assert H100.nano_per_unit_hour == 4 * CENTS_90
    stage.clock.advance(2 * HOUR.total_seconds())
    for name in ("observe_machines", "meter_usage", "rate_usage", "fund_leases"):
        await stage.run(name)
    (line,) = (await billing.bill(stage.api, lease.organization_id, reach=EVERYWHERE)).lines
    assert line.amount_nano + line.unrated_nano == CENTS_90, "the bill of a lease that is still ready"
    await stage.finish()
    (line,) = (await billing.bill(stage.api, lease.organization_id, reach=EVERYWHERE)).lines
    assert line.amount_nano == CENTS_90
    ended = await stage.lease_row(lease)
    assert (ended.end_reason, ended.billed_until) == ("released", lease.release_at), "its customer was faster"


async def test_a_release_of_many_leases_is_bounded_and_one_that_another_replica_holds_is_left(
    stage: Stage,
) -> None:
    lease = await _ready(stage, AutoRelease(after_seconds=60))
    stage.clock.advance(61)
    async with stage.db.transaction() as connection:
        await connection.execute(HELD, {"id": lease.id})
        (report,) = await stage.run("release_leases")
        assert (report.looked_at, report.acted_on, report.errors) == (1, 0, [])
    (report,) = await stage.run("release_leases")
    assert (report.looked_at, report.acted_on) == (1, 1)
    (report,) = await stage.run("release_leases")
    assert report.looked_at == 0
    await stage.finish()
