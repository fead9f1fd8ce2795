"""Leases of machines without GPUs: what they get, what they cost, and what limits them."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from control_plane.domain.access import EVERYWHERE
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.envelope import Envelope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.money import Nano
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.sku import Unit
from control_plane.domain.tariff import billing_start
from control_plane.services import billing
from control_plane.services.admissions import NotAllowed
from providers.fake_offers import a_cpu_offer, an_offer
from tests.support.machines_without_gpus import CPU, NANO_PER_SECOND, sell
from tests.support.rows import rows
from tests.support.stage import Stage

pytestmark = pytest.mark.database

REQUEST = CapacityRequest("cpu.16x")
_REPORTS = text("SELECT count(*) AS n FROM verification_reports")


async def _organization(stage: Stage, *, usd: int = 1_000, gpu_quota: int = 64) -> OrganizationId:
    """An organization, a SKU without GPUs, and the offers: one for it, and a cheaper one that has a GPU besides."""
    organization_id = await stage.organization(usd=usd, gpu_quota=gpu_quota)
    await sell(stage)
    stage.cloud.listing = (
        an_offer(GpuModel.L4_24GB, 1, "us-east-1", usd_per_gpu_hour="0.10"),
        a_cpu_offer(8, "us-east-1", usd_per_hour="0.15"),
        a_cpu_offer(16, "us-east-1", usd_per_hour="0.30"),
    )
    await stage.run("refresh_offers")
    return organization_id


async def _ready(stage: Stage, organization_id: OrganizationId, terms: LeaseTerms | None = None) -> Lease:
    lease = await stage.lease(organization_id, REQUEST, terms=terms)
    await stage.play_until(lease, "ready")
    return await stage.lease_row(lease)


async def test_it_gets_a_machine_without_gpus_which_proves_nothing_and_is_billed_as_one_unit(
    stage: Stage,
) -> None:
    organization_id = await _organization(stage)
    lease = await _ready(stage, organization_id)
    assert (lease.gpu_model, lease.gpu_count, lease.units) == (None, 0, 1)
    (machine,) = await stage.machines(lease)
    assert machine.native_type == "cpu.16", "a machine with GPUs is not sold without them, however cheap"
    assert (machine.gpu_model, machine.gpu_count) == (None, 0)
    skipped = [line.why for line in (await stage.why(lease)).journal if line.event == "proof_skipped"]
    assert skipped == ["no_gpus"]
    async with stage.db.reading() as connection:
        (reports,) = await rows(connection, _REPORTS)
    assert reports.n == 0, "no GPUs were read"

    await stage.play(5_000, step=500)
    (line,) = (await billing.bill(stage.api, organization_id, reach=EVERYWHERE)).lines
    assert (line.unit, line.nano_per_unit_hour) == (Unit.MACHINE, CPU.nano_per_unit_hour)
    await stage.release(lease)
    released_at = stage.clock.now()
    await stage.finish()

    assert lease.ready_at is not None
    seconds = int((released_at - lease.ready_at).total_seconds())
    totals = await billing.reconcile(stage.api, organization_id)
    assert (totals.gpu_seconds, totals.machine_seconds) == (0, seconds)
    assert totals.rated_nano == totals.posted_nano == Nano(seconds * NANO_PER_SECOND)


async def test_it_is_released_by_itself_when_its_limit_is_spent(stage: Stage) -> None:
    spend = Nano(CPU.nano_per_hour // 4)
    terms = LeaseTerms(auto_release=AutoRelease(spend_nano=spend))
    lease = await _ready(stage, await _organization(stage), terms)
    assert lease.ready_at is not None
    assert lease.release_at == billing_start(lease.ready_at) + timedelta(minutes=15)
    await stage.play(1_000, step=100)
    ended = await stage.lease_row(lease)
    assert (ended.end_reason, ended.billed_until) == ("auto_released", lease.release_at)
    await stage.finish()
    assert (await billing.reconcile(stage.api, lease.organization_id)).rated_nano == spend


async def test_it_ends_when_the_balance_does_not_cover_its_next_hour(stage: Stage) -> None:
    lease = await _ready(stage, await _organization(stage, usd=1))
    await stage.play(5_000, step=50)
    ended = await stage.lease_row(lease)
    assert ended.end_reason == "unfunded"
    await stage.finish()
    totals = await billing.reconcile(stage.api, lease.organization_id)
    assert 3_480 <= totals.machine_seconds <= 3_600, (
        "the first hour is paid for, and the second one cannot be"
    )
    assert totals.posted_nano == Nano(totals.machine_seconds * NANO_PER_SECOND)
    assert totals.balance_nano == 1_000_000_000 - totals.posted_nano


async def test_limits_on_gpus_do_not_count_it_and_limits_on_money_do(stage: Stage) -> None:
    organization_id = await _organization(stage, gpu_quota=0)
    first = await stage.lease(organization_id, REQUEST)
    await stage.narrow(organization_id, Envelope(gpus=0, spend_nano_per_hour=Nano(CPU.nano_per_hour * 2 - 1)))
    refused = await stage.try_lease(organization_id, REQUEST)
    assert isinstance(refused, NotAllowed)
    assert [each.code for each in refused.decision.refusals] == [RefusalCode.SPEND_LIMIT_REACHED]
    await stage.play_until(first, "ready")
    await stage.narrow(organization_id, Envelope(gpus=0, spend_nano_per_hour=Nano(CPU.nano_per_hour - 1)))
    await stage.play(90, step=10)
    assert "lease envelope_warned" in await stage.story(first), "it is watched although it has no GPUs"
    await stage.finish()
