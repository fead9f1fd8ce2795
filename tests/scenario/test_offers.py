"""Refreshing offers: each account alone, what is left out, and what became of an offer's machines."""

import asyncio
import dataclasses

import pytest

from control_plane.db import accounts, catalogue
from control_plane.domain.cpu import Architecture
from control_plane.domain.effective_price import History
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName
from control_plane.domain.placement import OFFERED_WITHIN, Offer
from control_plane.domain.refusal import RefusalCode, Refused
from providers.base import LeftOut, LeftOutFor
from providers.fake import FakeProvider, Fault
from providers.fake_offers import an_offer
from reconciler import offers_left_out
from reconciler.loops.providers import refresh_offers
from tests.support.stage import FAKE, Stage

pytestmark = pytest.mark.database
SLOW, BROKEN = AccountName("fake/slow"), AccountName("fake/broken")


async def _offers(stage: Stage) -> dict[str, Offer]:
    async with stage.db.reading() as connection:
        return {offer.region: offer for offer in await catalogue.offers(connection)}


async def test_a_slow_and_a_broken_account_keep_no_other_from_being_refreshed(stage: Stage) -> None:
    refreshed: list[AccountName] = []

    async def never_answers() -> None:
        await refresh_offers.activate(world, FAKE)
        refreshed.append(FAKE)

    slow, broken = FakeProvider(now=stage.clock.now), FakeProvider(now=stage.clock.now)
    slow.slow = never_answers  # While its answer is awaited, another account is refreshed from end to end.
    slow.faults.script("offers", Fault.SLOW)
    broken.faults.always("offers", Fault.UNAVAILABLE)
    world = dataclasses.replace(stage.world, accounts={**stage.world.accounts, SLOW: slow, BROKEN: broken})
    async with stage.db.transaction() as connection:
        for name in (SLOW, BROKEN):
            await accounts.register(connection, name, "fake", now=stage.clock.now())
    assert (await refresh_offers.activate(world, BROKEN)).errors
    assert (await refresh_offers.activate(world, SLOW)).looked_at > 0
    assert refreshed == [FAKE]
    async with stage.db.reading() as connection:
        failing = {each.name: each.offers_failing_since for each in await accounts.every(connection)}
    assert [name for name, since in failing.items() if since is not None] == [BROKEN]


async def test_replicas_that_wake_together_ask_for_the_offers_once(stage: Stage) -> None:
    reports = await asyncio.gather(*[refresh_offers.activate(stage.world, FAKE) for _ in range(3)])
    assert sorted(report.looked_at > 0 for report in reports) == [False, False, True]
    assert not (await refresh_offers.activate(stage.world, FAKE)).looked_at, "they are fresh"


async def test_what_has_no_name_of_ours_is_told_to_operators_and_the_rest_is_sold(stage: Stage) -> None:
    stage.cloud.left_out = (
        *[LeftOut(LeftOutFor.UNKNOWN_GPU, "H100 (94 GB SXM5)")] * 3,
        LeftOut(LeftOutFor.NO_PRICE, "odd\nname"),
    )
    (report,) = await stage.run("refresh_offers")
    told = ("no price: odd\\nname", "unknown GPU: H100 (94 GB SXM5) (3 times)")
    async with stage.db.reading() as connection:
        (account,) = await accounts.every(connection)
    assert account.offers_left_out == told
    assert tuple(report.notes) == told
    gauge = offers_left_out.LEFT_OUT
    values = {
        sample.labels["reason"]: sample.value
        for metric in gauge.collect()
        for sample in metric.samples
        if sample.labels["account"] == FAKE
    }
    assert values == {"unknown_gpu": 3, "unknown_region": 0, "no_price": 1, "odd": 0}
    assert len(await _offers(stage)) > 0
    stage.cloud.left_out = ()
    stage.clock.advance(60)
    await stage.run("refresh_offers")
    async with stage.db.reading() as connection:
        (account,) = await accounts.every(connection)
    assert account.offers_left_out == ()


async def test_an_ask_that_is_gone_for_a_week_is_forgotten_unless_its_machine_still_runs(
    stage: Stage,
) -> None:
    regions = ("eu-central-1", "us-east-1", "us-west-1")
    ours, gone, listed = (
        an_offer(GpuModel.H100_SXM_80GB, 1, region, usd_per_gpu_hour=f"2.{number}")
        for number, region in enumerate(regions)
    )
    stage.cloud.listing = (ours, gone)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=60)
    stage.cloud.listing = (listed,)
    stage.clock.advance(30)
    await stage.run("refresh_offers")
    offers = await _offers(stage)
    assert offers.keys() == {*regions}
    assert not any(offers[region].available for region in regions[:2])
    for seconds, left in (
        (OFFERED_WITHIN.total_seconds() - 60, regions),
        (60, (regions[0], regions[2])),
    ):
        stage.clock.advance(seconds)
        await stage.run("refresh_offers")
        assert (await _offers(stage)).keys() == {*left}, seconds
    await stage.release(lease)
    await stage.play_until(lease, "ended", seconds_max=200, step=5)
    stage.clock.advance(30)
    await stage.run("refresh_offers")
    assert (await _offers(stage)).keys() == {regions[2]}, "its machine is gone"
    await stage.finish()


async def test_offers_that_come_back_after_a_long_outage_are_kept(stage: Stage) -> None:
    await stage.run("refresh_offers")
    before = await _offers(stage)
    stage.clock.advance(OFFERED_WITHIN.total_seconds() + 60)
    stage.cloud.faults.script("offers", Fault.UNAVAILABLE)
    await stage.run("refresh_offers")
    assert (await _offers(stage)).keys() == before.keys(), "a list that failed says nothing"
    stage.clock.advance(30)
    await stage.run("refresh_offers")
    assert (await _offers(stage)).keys() == before.keys()


async def test_spot_capacity_and_arm_hosts_are_in_the_catalogue_and_no_lease_gets_them(stage: Stage) -> None:
    spot = an_offer(GpuModel.H100_SXM_80GB, 1, "eu-central-1", usd_per_gpu_hour="0.10")
    arm = an_offer(GpuModel.H100_SXM_80GB, 1, "us-east-1", usd_per_gpu_hour="0.20")
    stage.cloud.listing = (
        dataclasses.replace(spot, spot=True, eviction_notice_seconds=120),
        dataclasses.replace(arm, architecture=Architecture.ARM64),
    )
    organization_id = await stage.organization()
    await stage.run("refresh_offers")
    listed = await _offers(stage)
    assert (listed["eu-central-1"].spot, listed["eu-central-1"].eviction_notice_seconds) == (True, 120)
    assert listed["us-east-1"].architecture is Architecture.ARM64
    refused = await stage.try_lease(organization_id)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.SKU_NOT_OFFERED


async def test_machines_that_never_boot_lower_their_offer_in_the_ranking(stage: Stage) -> None:
    stage.cloud.listing = (
        an_offer(GpuModel.H100_SXM_80GB, 1, "eu-central-1", usd_per_gpu_hour="2.29"),
        an_offer(GpuModel.H100_SXM_80GB, 1, "us-east-1", usd_per_gpu_hour="2.30"),
    )
    stage.cloud.faults.script("launch", Fault.NEVER_BOOTS)
    lease = await stage.lease(await stage.organization())
    await stage.play_until(lease, "ready", seconds_max=1_000, step=20)
    await stage.play(60, step=30)
    offers = await _offers(stage)
    assert offers["eu-central-1"].history == History(tried=1, failed=1)
    assert offers["us-east-1"].history == History(tried=1, failed=0)
    other = await stage.lease(await stage.organization())
    await stage.play_until(other, "ready", seconds_max=30)
    assert (await stage.machines(other))[0].region == "us-east-1", "the listed price of the other is lower"
    await stage.release(lease)
    await stage.play_until(lease, "ended", seconds_max=200, step=5)
    await stage.play(60, step=30)
    assert (await _offers(stage))["us-east-1"].history == History(tried=2, failed=0), (
        "the first one ended well"
    )
    await stage.finish()
