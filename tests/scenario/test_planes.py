"""Parts of the cloud that fail apart: what a part that is away may not take with it, and what it finds when it is back."""

from datetime import timedelta

import pytest

from control_plane.domain.ids import AccountName
from control_plane.domain.lease import Lease
from control_plane.domain.money import Nano
from control_plane.domain.tariff import billing_end, billing_start
from control_plane.services import billing
from providers.fake import Fault
from tests.support.stage import FAKE, H100, Stage, set_stage

pytestmark = pytest.mark.database

TEN_MINUTES = 600
SECOND = AccountName("fake/second")


async def _seconds_used(stage: Stage, lease: Lease) -> int:
    """From ready to released, in whole seconds, by the journal's times."""
    row = await stage.lease_row(lease)
    assert row.ready_at is not None
    assert row.billed_until is not None
    used = billing_end(row.ready_at, row.billed_until) - billing_start(row.ready_at)
    return used // timedelta(seconds=1)


async def test_ten_minutes_without_the_control_plane_cost_no_machine_and_no_second_of_the_meter(
    stage: Stage,
) -> None:
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id, name=name) for name in ("a", "b")]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=60)
    before = {machine.provider_ref for machine in stage.cloud.alive()}
    stage.clock.advance(TEN_MINUTES)  # Nobody does anything.
    await stage.play(60, step=10)
    assert {machine.provider_ref for machine in stage.cloud.alive()} == before, (
        "the machines ran on, and still do"
    )
    assert [await stage.state(lease) for lease in leases] == ["ready", "ready"]
    for lease in leases:
        await stage.release(lease)
    await stage.finish()
    used = [await _seconds_used(stage, lease) for lease in leases]
    assert min(used) > TEN_MINUTES
    totals = await billing.reconcile(stage.api, organization_id)
    assert totals.gpu_seconds == sum(used)
    assert totals.posted_nano == Nano(sum(used) * H100.nano_per_unit_hour // 3_600)


async def test_a_region_that_is_cut_off_takes_nothing_else_with_it(stage: Stage) -> None:
    """Its provider and its machines answer nobody for ten minutes; the API, the other region and the bills go on."""
    stage = await set_stage(stage.db, stage.clock, names=(FAKE, SECOND), api_db=stage.api.db)
    await stage.round()
    organization_id = await stage.organization()
    there = await stage.lease(organization_id, name="there")
    await stage.play_until(there, "ready", seconds_max=60)
    (machine,) = await stage.machines(there)
    cut_off, reachable = (FAKE, SECOND) if machine.account == FAKE else (SECOND, FAKE)
    for verb in ("offers", "launch", "inventory", "terminate"):
        stage.clouds[cut_off].faults.always(verb, Fault.UNAVAILABLE)
    await stage.play(TEN_MINUTES / 2, step=15)
    here = await stage.lease(organization_id, name="here")
    await stage.play_until(here, "ready", seconds_max=60)
    assert [each.account for each in await stage.machines(here)] == [reachable]
    await stage.play(TEN_MINUTES / 2, step=15)
    assert await stage.state(there) == "ready", "that nobody can see it is no evidence that it ended"
    assert len(stage.clouds[cut_off].alive()) == 1
    await stage.release(here)
    await stage.play_until(here, "ended", seconds_max=120)
    billed = (await billing.reconcile(stage.api, organization_id)).gpu_seconds
    assert billed == await _seconds_used(stage, here) > TEN_MINUTES / 2 - 60, "it was billed all the while"

    stage.clouds[cut_off].faults.clear()
    await stage.play(30)
    assert await stage.state(there) == "ready"
    shown = await stage.machines(there)
    assert [each.id for each in shown] == [machine.id], "nothing was bought in its place"
    await stage.release(there)
    await stage.finish()
    used = await _seconds_used(stage, there) + await _seconds_used(stage, here)
    assert (await billing.reconcile(stage.api, organization_id)).gpu_seconds == used
