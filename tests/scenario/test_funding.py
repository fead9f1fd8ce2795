"""Money over time: holds, warnings, ends, boundaries. A balance is never overspent, an hour never billed twice."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import text

from control_plane.db import holds, organizations
from control_plane.db.connection import Connection
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.admission import Standing
from control_plane.domain.funding import first_look
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.lease import EndReason, Lease
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.tariff import billing_start
from control_plane.services import billing, ledger
from reconciler.loops.money import fund_leases
from tests.support.rows import rows
from tests.support.stage import H100, Stage
from tests.support.values import PAID

pytestmark = pytest.mark.database

_CHARGES = text(
    "SELECT started_at, ended_at, unit_seconds, amount_nano FROM charges WHERE lease_id = :id ORDER BY number"
)
_MONEY = text("SELECT posted_nano, held_nano FROM standings WHERE organization_id = :id")
_WARNED = text("SELECT funding_warned_at FROM leases WHERE id = :id")
_HOLDS = text("""
SELECT h.due_at, h.posted_nano, (SELECT coalesce(sum(amount_nano), 0) FROM charges c WHERE c.lease_id = h.lease_id)
       AS charged
FROM holds h WHERE h.lease_id = :id
""")


async def _standing(stage: Stage, organization_id: OrganizationId) -> Standing:
    async with stage.db.reading() as connection:
        standing = await organizations.standing(connection, organization_id, lock=False)
    assert standing is not None
    return standing


async def _posted_and_held(stage: Stage, organization_id: OrganizationId) -> tuple[int, int]:
    async with stage.db.reading() as connection:
        row = (await rows(connection, _MONEY, id=organization_id))[0]
    return row.posted_nano, row.held_nano


async def _warned(stage: Stage, lease: Lease) -> bool:
    async with stage.db.reading() as connection:
        return (await rows(connection, _WARNED, id=lease.id))[0].funding_warned_at is not None


async def _ready(stage: Stage, *, usd: int) -> Lease:
    lease = await stage.lease(await stage.organization(usd=usd))
    await stage.play_until(lease, "ready", seconds_max=60)
    return lease


async def _top_up(stage: Stage, lease: Lease, *, usd: int, key: str) -> None:
    async with stage.db.transaction() as connection:
        await ledger.top_up(
            connection, stage.api, lease.organization_id, Nano(usd * NANO_PER_USD), key=key, approval=PAID
        )


async def test_a_lease_that_cannot_be_funded_is_warned_once_then_ended_before_the_balance_is_overspent(
    stage: Stage,
) -> None:
    lease = await _ready(stage, usd=4)
    ready_at = stage.clock.now()
    await stage.play(29 * 60, step=290)
    assert not await _warned(stage, lease)
    await stage.play(3 * 60, step=30)
    assert await _warned(stage, lease)
    await stage.play(25 * 60, step=150)
    assert await stage.state(lease) == "ready", "the hour that was set aside is the customer's"
    await stage.play_until(lease, "ended", seconds_max=300, step=15)
    row = await stage.lease_row(lease)
    assert row.end_reason is EndReason.UNFUNDED
    assert row.billed_until is not None
    assert timedelta(minutes=57) < row.billed_until - ready_at < timedelta(minutes=60)
    story = await stage.story(lease)
    assert story.count("lease funding_warned") == 1
    await stage.play(30, step=10)
    posted, held = await _posted_and_held(stage, lease.organization_id)
    assert 0 < posted < 400_000_000 + 3 * 60 * 1_000_000
    assert held == 0
    await stage.check_finished()


async def test_a_top_up_after_the_warning_lets_the_lease_go_on_and_takes_the_warning_back(
    stage: Stage,
) -> None:
    lease = await _ready(stage, usd=4)
    await stage.play(40 * 60, step=300)
    assert await _warned(stage, lease)
    await _top_up(stage, lease, usd=10, key="late")
    await stage.play(60, step=30)
    assert not await _warned(stage, lease)
    await stage.play(60 * 60, step=360)
    assert await stage.state(lease) == "ready"
    await stage.finish()


async def test_the_same_top_up_sent_twice_counts_once(stage: Stage) -> None:
    lease = await _ready(stage, usd=4)
    before, _ = await _posted_and_held(stage, lease.organization_id)
    await _top_up(stage, lease, usd=10, key="once")
    await _top_up(stage, lease, usd=10, key="once")
    after, _ = await _posted_and_held(stage, lease.organization_id)
    assert after - before == 10 * NANO_PER_USD
    await stage.finish()


async def test_a_hold_is_renewed_ahead_of_time_and_never_covers_less_than_what_is_used(stage: Stage) -> None:
    lease = await _ready(stage, usd=1_000)
    ready_at = stage.clock.now()
    for _ in range(16):
        await stage.play(14 * 60, step=120)
        posted, held = await _posted_and_held(stage, lease.organization_id)
        used = int((stage.clock.now() - ready_at).total_seconds()) * 1_000_000
        unposted = used - (1_000 * NANO_PER_USD - posted)
        assert held - unposted >= 27 * 60 * 1_000_000, "half an hour ahead, but for a turn of the loop"
        assert held <= 2 * H100.nano_per_hour
        await stage.check()
    await stage.finish()


async def test_a_hold_is_looked_at_when_half_of_it_is_used_and_not_before(stage: Stage) -> None:
    lease = await _ready(stage, usd=1_000)
    ready_at = (await stage.lease_row(lease)).ready_at
    assert ready_at is not None
    async with stage.db.reading() as connection:
        (hold,) = await rows(connection, _HOLDS, id=lease.id)
    assert hold.due_at == first_look(ready_at)

    stage.clock.advance((hold.due_at - stage.clock.now()).total_seconds() - 1)
    (report,) = await stage.run("fund_leases")
    assert (report.looked_at, report.acted_on) == (0, 0)
    stage.clock.advance(2)
    (report,) = await stage.run("fund_leases")
    assert (report.looked_at, report.acted_on) == (1, 1)
    async with stage.db.reading() as connection:
        (renewed,) = await rows(connection, _HOLDS, id=lease.id)
    assert timedelta(minutes=30) <= renewed.due_at - stage.clock.now() <= timedelta(minutes=30, seconds=2)
    (report,) = await stage.run("fund_leases")
    assert report.looked_at == 0
    await stage.finish()


async def test_an_activation_is_bounded_and_takes_the_longest_due_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fund_leases, "FUNDED_PER_ACTIVATION_MAX", 2)
    leases = [await _ready(stage, usd=1_000) for _ in range(3)]  # One after the other.
    stage.clock.advance(31 * 60)
    (report,) = await stage.run("fund_leases")
    assert (report.looked_at, report.acted_on, report.more) == (2, 2, True)
    async with stage.db.reading() as connection:
        due = [(await rows(connection, _HOLDS, id=lease.id))[0].due_at for lease in leases]
    assert [at > stage.clock.now() for at in due] == [True, True, False]
    (report,) = await stage.run("fund_leases")
    assert (report.looked_at, report.acted_on, report.more) == (1, 1, False)
    await stage.finish()


async def test_a_lease_that_cannot_be_looked_at_keeps_nobody_else_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [await _ready(stage, usd=1_000) for _ in range(2)]
    stage.clock.advance(31 * 60)
    extend = holds.extend

    async def fails_for_the_first(connection: Connection, lease_id: LeaseId, more: Nano) -> None:
        assert lease_id != first.id, "a hold that cannot be extended"
        await extend(connection, lease_id, more)

    monkeypatch.setattr(holds, "extend", fails_for_the_first)
    (report,) = await stage.run("fund_leases")
    assert (report.looked_at, report.acted_on, report.more) == (2, 1, False)
    (error,) = report.errors
    assert "a hold that cannot be extended" in error
    monkeypatch.undo()
    (report,) = await stage.run("fund_leases")
    assert (report.looked_at, report.acted_on, report.errors) == (1, 1, [])
    assert await stage.state(second) == "ready"
    await stage.finish()


async def test_a_hold_keeps_what_was_posted_and_posts_nothing_twice(stage: Stage) -> None:
    lease = await _ready(stage, usd=100)
    for _ in range(2):
        await stage.play(7_200, step=600)
        async with stage.db.reading() as connection:
            (hold,) = await rows(connection, _HOLDS, id=lease.id)
        assert hold.posted_nano == hold.charged > 0
    await stage.release(lease)
    await stage.finish()
    async with stage.db.reading() as connection:
        (hold,) = await rows(connection, _HOLDS, id=lease.id)
    assert hold.posted_nano == hold.charged


async def test_two_leases_of_one_organization_share_its_balance_and_never_overspend_it(stage: Stage) -> None:
    organization_id = await stage.organization(usd=10)
    leases = [await stage.lease(organization_id) for _ in range(2)]
    for lease in leases:
        await stage.play_until(lease, "ready", seconds_max=60)
    third = await stage.try_lease(organization_id)
    assert isinstance(third, Refused)
    assert third.code is RefusalCode.BALANCE_TOO_LOW
    for _ in range(20):
        await stage.play(6 * 60, step=60)
        posted, held = await _posted_and_held(stage, organization_id)
        assert posted - held >= 0, "what is set aside is there"
        await stage.check()
    assert [await stage.state(lease) for lease in leases] == ["ended", "ended"]
    reasons = {(await stage.lease_row(lease)).end_reason for lease in leases}
    assert reasons == {EndReason.UNFUNDED}
    await stage.play(30, step=10)
    posted, held = await _posted_and_held(stage, organization_id)
    assert posted >= 0
    assert held == 0
    await stage.check_finished()


async def test_quota_and_hold_of_a_released_lease_are_free_at_once_and_the_used_part_stays_held(
    stage: Stage,
) -> None:
    organization_id = await stage.organization(usd=8, gpu_quota=1)
    lease = await stage.lease(organization_id)
    await stage.play_until(lease, "ready", seconds_max=60)
    refused = await stage.try_lease(organization_id)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.QUOTA_EXCEEDED
    await stage.play(600, step=120)
    await stage.release(lease)
    assert (await stage.organization_row(organization_id)).gpus_held == 0
    row = await stage.lease_row(lease)
    assert row.ready_at is not None
    assert row.billed_until is not None
    used = row.tariff(row.ready_at).cost_until(row.billed_until)
    assert used < H100.nano_per_hour / 5
    assert (await _standing(stage, organization_id)).available_nano == 8 * NANO_PER_USD - used
    assert isinstance(await stage.try_lease(organization_id), Lease)
    await stage.finish()


async def test_an_hour_boundary_cuts_the_bill_without_a_gap_or_an_overlap(stage: Stage) -> None:
    stage.clock.advance(55 * 60 + 0.25)
    lease = await _ready(stage, usd=100)
    await stage.play(2.5 * 3_600, step=900)
    await stage.release(lease)
    await stage.finish()
    row = await stage.lease_row(lease)
    assert row.ready_at is not None
    async with stage.db.reading() as connection:
        charges = await rows(connection, _CHARGES, id=lease.id)
    assert [(one.started_at.minute, one.started_at.second) for one in charges[1:]] == [(0, 0)] * (
        len(charges) - 1
    )
    assert len(charges) == 4
    assert all(one.ended_at == other.started_at for one, other in pairwise(charges))
    assert charges[0].started_at == billing_start(row.ready_at)
    assert sum(one.amount_nano for one in charges) == sum(one.unit_seconds for one in charges) * 1_000_000


async def test_a_month_boundary_bills_each_month_its_own_seconds(stage: Stage) -> None:
    stage.clock.advance((datetime(2026, 11, 30, 23, 30, tzinfo=UTC) - stage.clock.now()).total_seconds())
    lease = await _ready(stage, usd=100)
    ready_at = (await stage.lease_row(lease)).ready_at
    assert ready_at is not None
    await stage.play(90 * 60, step=600)
    released_at = stage.clock.now()
    await stage.release(lease)
    await stage.finish()
    midnight = datetime(2026, 12, 1, tzinfo=UTC)
    async with stage.db.reading() as connection:
        charges = await rows(connection, _CHARGES, id=lease.id)
    november = sum(one.unit_seconds for one in charges if one.started_at < midnight)
    december = sum(one.unit_seconds for one in charges if one.started_at >= midnight)
    assert november == (midnight - ready_at).total_seconds()
    assert december == int((released_at - midnight).total_seconds())
    bill = await billing.bill(stage.api, lease.organization_id, reach=EVERYWHERE)
    assert bill.since == midnight
    assert [line.unit_seconds for line in bill.lines] == [december]
    assert bill.amount_nano == december * 1_000_000


async def test_nothing_is_billed_before_a_machine_is_verified_however_long_that_takes(stage: Stage) -> None:
    stage.access.script("10.0.0.1", unreachable=25)
    lease = await stage.lease(await stage.organization())
    await stage.play(240, step=20)
    assert await stage.state(lease) == "starting"
    assert len(stage.cloud.alive()) == 1, "we pay for it already"
    await stage.check()
    await stage.play_until(lease, "ready", seconds_max=600, step=5)
    row = await stage.lease_row(lease)
    await stage.play(7, step=1)
    released_at = stage.clock.now()
    await stage.release(lease)
    await stage.finish()
    async with stage.db.reading() as connection:
        (charge,) = await rows(connection, _CHARGES, id=lease.id)
    assert row.ready_at is not None
    assert charge.started_at == billing_start(row.ready_at)
    assert charge.ended_at == released_at.replace(microsecond=0)


async def test_a_lease_that_is_released_the_moment_it_is_ready_costs_nothing_and_finishes(
    stage: Stage,
) -> None:
    lease = await stage.lease(await stage.organization())
    while await stage.state(lease) != "ready":
        stage.clock.advance(2)
        await stage.round()
    row = await stage.lease_row(lease)
    assert row.ready_at == stage.clock.now()
    await stage.release(lease)
    await stage.finish()
    totals = await billing.reconcile(stage.api, lease.organization_id)
    assert (totals.gpu_seconds, totals.rated_nano, totals.posted_nano) == (0, 0, 0)
    assert totals.balance_nano == 1_000 * NANO_PER_USD
