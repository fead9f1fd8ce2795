"""What a refused order keeps other leases from ordering, and what `why` tells of the whole search."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.db import offer_blocks
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.lease import Lease
from control_plane.domain.placement import RejectCode
from control_plane.domain.request import CapacityRequest
from providers.fake import Fault
from providers.fake_offers import an_offer
from tests.support.stage import Stage

pytestmark = pytest.mark.database
MINUTE = 60


async def _three_offers(stage: Stage) -> None:
    prices = {"eu-central-1": "2.20", "us-east-1": "2.30", "us-west-1": "2.40"}
    stage.cloud.listing = tuple(
        an_offer(GpuModel.H100_SXM_80GB, 1, region, usd_per_gpu_hour=price)
        for region, price in prices.items()
    )
    for offer in stage.cloud.listing:
        stage.cloud.stock[offer.native_type, offer.native_region] = 8
    await stage.run("refresh_offers")


async def _regions(stage: Stage, lease: Lease) -> list[str]:
    return [machine.region for machine in await stage.machines(lease)]


async def _rejected(stage: Stage, lease: Lease, placement: int) -> dict[str, RejectCode]:
    ranking = (await stage.why(lease)).placements[placement].ranking
    return {offer.region: offer.code for offer in ranking.rejected}


async def test_two_offers_refuse_the_third_runs_and_why_tells_the_whole_search(stage: Stage) -> None:
    await _three_offers(stage)
    for _ in range(2):
        stage.cloud.faults.script("launch", Fault.NO_CAPACITY)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=30)
    assert await _regions(stage, lease) == ["eu-central-1", "us-east-1", "us-west-1"]
    resting = RejectCode.RESTING
    assert [await _rejected(stage, lease, number) for number in range(3)] == [
        {},
        {"eu-central-1": resting},
        {"eu-central-1": resting, "us-east-1": resting},
    ]
    told = (await stage.why(lease)).placements
    assert [placement.chosen for placement in told] == [
        placement.ranking.candidates[0].offer for placement in told
    ]

    # What this lease learnt spares the next one two orders, and the offers are tried again later.
    spared = await stage.lease(await stage.organization())
    await stage.play_until(spared, "ready", seconds_max=30)
    assert await _regions(stage, spared) == ["us-west-1"]
    assert await _rejected(stage, spared, 0) == dict.fromkeys(
        ("eu-central-1", "us-east-1"), RejectCode.BLOCKED
    )
    await stage.play(3 * MINUTE, step=15)
    later = await stage.lease(await stage.organization())
    await stage.play_until(later, "ready", seconds_max=30)
    assert await _regions(stage, later) == ["eu-central-1"]
    await stage.finish()


async def test_a_lease_whose_region_is_blocked_waits_there_instead_of_leaving_its_region(
    stage: Stage,
) -> None:
    await _three_offers(stage)
    organization_id = await stage.organization()
    stage.cloud.faults.script("launch", Fault.QUOTA_REACHED)
    first = await stage.lease(organization_id, CapacityRequest("h100x1", regions=("us-east-1",)))
    await stage.play(20, step=5)
    assert [attempt.fail_reason for attempt in await stage.attempts(first)] == [FailReason.QUOTA_REACHED]
    second = await stage.lease(organization_id, CapacityRequest("h100x1", regions=("us-east-1",)))
    await stage.play(4 * MINUTE, step=30)
    assert await stage.attempts(second) == []
    assert (await _rejected(stage, second, -1))["us-east-1"] is RejectCode.BLOCKED
    waiting = (await stage.shown(second)).status.waiting
    assert waiting is not None
    assert "1 left alone after a refused order" in waiting.why
    for lease in (first, second):
        await stage.play_until(lease, "ready", seconds_max=2 * MINUTE, step=5)
        assert set(await _regions(stage, lease)) == {"us-east-1"}
    await stage.finish()


async def test_an_order_that_waits_is_not_sent_once_another_one_of_the_same_is_refused(stage: Stage) -> None:
    """Two leases chose the same offer; the first order is refused while the second one waits for its turn."""
    await _three_offers(stage)
    organization_id = await stage.organization()
    first, second = [await stage.lease(organization_id) for _ in range(2)]
    await stage.run("place_leases")
    assert await _regions(stage, first) == await _regions(stage, second) == ["eu-central-1"]
    (waits,) = await stage.machines(second)
    later = {"id": waits.id, "due_at": stage.clock.now() + timedelta(seconds=2)}
    async with stage.db.transaction() as connection:
        await connection.execute(text("UPDATE machines SET due_at = :due_at WHERE id = :id"), later)
    stage.cloud.faults.script("launch", Fault.NO_CAPACITY)
    await stage.run("launch_machines")
    stage.clock.advance(5)
    report = (await stage.run("launch_machines"))[0]
    assert stage.cloud.calls_of("launch") == 1, "the second order was not sent"
    (note,) = report.notes
    assert "another order of h100-sxm-80gb.1 in eu-central-1 was refused lately (no_capacity)" in note
    (attempt,) = await stage.attempts(second)
    assert attempt.fail_reason is FailReason.NO_CAPACITY
    async with stage.db.reading() as connection:
        blocks = await offer_blocks.in_force(connection, now=stage.clock.now())
    assert [block.machine_id for block in blocks] != [waits.id], "what was not sent proves nothing anew"
    assert len(blocks) == 1
    for lease in (first, second):
        await stage.play_until(lease, "ready", seconds_max=30)
        assert (await _regions(stage, lease))[-1] == "us-east-1"
    await stage.finish()


async def test_refused_credentials_keep_every_lease_from_ordering_by_that_account(stage: Stage) -> None:
    await _three_offers(stage)
    stage.cloud.faults.always("launch", Fault.UNAUTHORIZED)
    organization_id = await stage.organization()
    leases = [await stage.lease(organization_id) for _ in range(2)]
    await stage.play(4 * MINUTE, step=30)
    launches = stage.cloud.calls_of("launch")
    assert launches <= len(leases), "those that were placed before the first answer came"
    stage.cloud.faults.clear()
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=2 * MINUTE, step=5)
    await stage.finish()
