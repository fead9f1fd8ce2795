"""Leases that are committed to for a term: played to their end, released earlier, and ended by somebody else."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.db import exports, holds, invoices, reconciliation_batches
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.credit_terms import CreditTerms
from control_plane.domain.envelope import Envelope, Level
from control_plane.domain.focus import NAMES, Row
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.money import NANO_PER_USD, Nano, accrued
from control_plane.domain.payment import PaymentEvent, PaymentEventKind
from control_plane.domain.period import month_of
from control_plane.domain.price import Price
from control_plane.domain.purchase import OnEviction, PurchaseKind
from control_plane.domain.reconciliation import sides
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest, LeaseTerms
from control_plane.domain.sku import Unit
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import SETTLES_AFTER
from control_plane.domain.tariff import billing_start
from control_plane.services import billing, credit_terms, payments, repairs
from control_plane.services.lease_changes import Changes, change
from data_plane.documents.sample import Gpu
from reconciler.worlds.complete import CompleteWorld
from tests.support import machine_samples
from tests.support.crash import Crash
from tests.support.faults import LOST, shows
from tests.support.hand_backs import asked_for_another
from tests.support.promises import put_terms_in_force
from tests.support.reconciliations import asked_for
from tests.support.rows import rows
from tests.support.stage import BOOK, CUSTOMER, H100, Stage

pytestmark = pytest.mark.database
DAYS = 9
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TERM_PRICE = Nano(2_700_000_007)
"""An hour of H100 for the term; a second of it is no whole number of nano-dollars."""
WHOLE = accrued(TERM_PRICE, DAYS * 86_400)
BOOK_WITH_TERMS = tuple(
    replace(price, committed_nano_per_unit_hour=TERM_PRICE, committed_days=DAYS) if price is H100 else price
    for price in BOOK
)
COMMITTED = CapacityRequest("h100x1", purchase=PurchaseKind.COMMITTED, committed_days=DAYS)
NOTICES = text("SELECT kind, at, planned_at, message FROM notices WHERE lease_id = :id ORDER BY number")
WARNED = text("SELECT funding_warned_at IS NOT NULL AS warned FROM leases WHERE id = :id")
CHARGES = text("""
SELECT unused, sum(unit_seconds)::bigint AS seconds, sum(amount_nano)::bigint AS nano, count(*) AS charges
FROM charges WHERE lease_id = :id GROUP BY unused ORDER BY unused
""")
CREDITED = text("""
SELECT a.charged_nano, a.credit_nano FROM sla_assessments a JOIN sla_breaches b ON b.id = a.breach_id
WHERE b.lease_id = :id
""")


async def _ready(stage: Stage, *, usd: int = 1_000) -> Lease:
    stage.book = BOOK_WITH_TERMS
    lease = await stage.lease(await stage.organization(usd=usd), COMMITTED)
    await stage.play_until(lease, "ready")
    return await stage.lease_row(lease)


async def _held(stage: Stage, lease: Lease) -> Nano:
    return (await stage.organization_row(lease.organization_id)).held_nano


async def _charged(stage: Stage, lease: Lease) -> dict[bool, tuple[int, int, int]]:
    """Seconds, nano-dollars and charges, of what was used and of what was not."""
    async with stage.db.reading() as connection:
        found = await rows(connection, CHARGES, id=lease.id)
    return {row.unused: (row.seconds, row.nano, row.charges) for row in found}


async def _reconciles(stage: Stage, *, closed: bool) -> None:
    """No link of the month's books differs by a nano-dollar."""
    asked: UUID = await asked_for(stage.db, stage.clock.now(), closed=closed)
    while (await stage.run("reconcile_periods"))[0].more:
        pass
    async with stage.db.reading() as connection:
        found = await reconciliation_batches.differences(connection, asked, after=None, limit=100)
        (batch,) = await reconciliation_batches.batches(connection, [asked])
    assert found == []
    assert not any(link.difference_nano for link in sides(batch.amounts) if link.link.value != "exported")


async def _rows(stage: Stage, lease: Lease) -> list[Row]:
    """The rows of an export of the customer's month."""
    async with stage.db.reading() as connection:
        found = await exports.ChargeReader(seller="Splitplane GmbH").page(
            connection,
            lease.organization_id,
            month=month_of(stage.clock.now()),
            cut_at=stage.clock.now(),
            invoiced_until=stage.clock.now(),
            after=None,
            limit=10_000,
        )
    return [pattern.row(own) for pattern, own in found]


def _column(found: list[Row], name: str) -> list[object]:
    return [row[NAMES.index(name)] for row in found]


async def test_a_term_is_held_whole_announced_twice_and_played_to_its_end_at_its_price(stage: Stage) -> None:
    lease = await _ready(stage)
    assert lease.ready_at is not None
    until = billing_start(lease.ready_at) + DAYS * DAY
    assert (lease.committed_days, lease.committed_until, lease.release_at) == (DAYS, until, until)
    assert await _held(stage, lease) == WHOLE
    await stage.play(DAY.total_seconds(), step=7_200)
    await _reconciles(stage, closed=False)
    assert await _told(stage, lease) == []
    await stage.play(2 * DAY.total_seconds(), step=7_200)
    assert await _told(stage, lease) == [until]
    await stage.play(5.5 * DAY.total_seconds(), step=7_200)
    assert await _told(stage, lease) == [until, until]
    await stage.check()
    assert (await stage.shown(lease)).overview.lease.state == "ready"
    await stage.play(12 * 3_600, step=600)
    ended = await stage.lease_row(lease)
    assert (ended.end_reason, ended.billed_until, ended.unused_unit_seconds) == ("auto_released", until, 0)
    assert ended.end_why == f"its term of {DAYS} days is over"
    await stage.finish()
    assert await _charged(stage, lease) == {False: (DAYS * 86_400, WHOLE, DAYS * 24 + 1)}
    assert await _held(stage, lease) == 0
    await _reconciles(stage, closed=True)
    found = await _rows(stage, lease)
    assert set(_column(found, "PricingCategory")) == {"Committed"}
    assert set(_column(found, "CommitmentDiscountStatus")) == {"Used"}


async def _told(stage: Stage, lease: Lease) -> list[datetime]:
    """When the term ends, as the customer was told."""
    async with stage.db.reading() as connection:
        found = await rows(connection, NOTICES, id=lease.id)
    assert {row.kind for row in found} <= {"term_ending"}
    return [row.planned_at for row in found]


async def test_a_release_before_the_end_charges_the_rest_at_once_and_both_come_to_the_price_of_the_term(
    stage: Stage,
) -> None:
    lease = await _ready(stage)
    assert lease.ready_at is not None
    await stage.play(26 * 3_600, step=3_600)
    fee = (await stage.lease_row(lease)).release_fee(stage.clock.now())
    refused = await stage.try_release(lease)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.FEE_NOT_ACCEPTED
    too_little = await stage.try_release(lease, accept_fee=Nano(fee - 1))
    assert isinstance(too_little, Refused)
    assert await stage.state(lease) == "ready"
    await stage.release(lease, accept_fee=fee)
    assert await _held(stage, lease) > fee, "the last use and the rest are set aside until they are charged"
    await stage.check()
    bill = (await billing.bill(stage.api, lease.organization_id, reach=EVERYWHERE)).lines
    assert [line.unused for line in bill] == [False, True]
    assert sum(line.amount_nano + line.unrated_nano for line in bill) == WHOLE
    await stage.finish()

    ended = await stage.lease_row(lease)
    assert ended.billed_until is not None
    used = int((ended.billed_until.replace(microsecond=0) - billing_start(lease.ready_at)).total_seconds())
    charged = await _charged(stage, lease)
    assert charged[True] == (DAYS * 86_400 - used, fee, 1)
    assert charged[False][:2] == (used, WHOLE - fee)
    assert await _held(stage, lease) == 0
    totals = await billing.reconcile(stage.api, lease.organization_id)
    assert (totals.gpu_seconds, totals.rated_nano, totals.posted_nano) == (used, WHOLE, WHOLE)
    await _reconciles(stage, closed=True)

    async with stage.db.reading() as connection:
        lines = await invoices.usage(connection, lease.organization_id, month_of(stage.clock.now()))
    assert [(line.unused, line.unit_seconds, line.amount_nano, line.unit) for line in lines] == [
        (False, used, WHOLE - fee, Unit.GPU),
        (True, DAYS * 86_400 - used, fee, Unit.GPU),
    ]
    found = await _rows(stage, lease)
    unused = [row for row in found if row[NAMES.index("CommitmentDiscountStatus")] == "Unused"]
    assert len(unused) == 1
    assert _column(unused, "ConsumedQuantity") == _column(unused, "ConsumedUnit") == [None]
    assert set(_column(found, "CommitmentDiscountId")) == {f"le_{lease.id.hex}/commitment"}
    assert _column(found, "CommitmentDiscountQuantity") == _column(found, "PricingQuantity")
    assert sum(int(str(cost)) for cost in _column(found, "BilledCost")) == WHOLE * 1_000
    assert sum(int(str(hours)) for hours in _column(found, "PricingQuantity")) == DAYS * 24 * 10**12


async def test_the_rest_is_charged_once_where_its_meter_and_its_rating_die_around_their_commits(
    stage: Stage,
) -> None:
    lease = await _ready(stage)
    await stage.play(5_400, step=1_800)
    await stage.release(lease, accept_fee=WHOLE)
    left = await _charged(stage, lease)
    for name in ("meter_usage", "rate_usage"):
        await _die(stage, name, "before")
        assert await _charged(stage, lease) == left
        await _die(stage, name, "after")
    charged = await _charged(stage, lease)
    assert sum(nano for _, nano, _ in charged.values()) == WHOLE
    assert charged[True][2] == 1
    assert await _held(stage, lease) == 0
    await stage.finish()
    assert await _charged(stage, lease) == charged


async def test_a_credit_for_a_broken_promise_is_a_share_of_the_use_and_not_of_the_rest_of_the_term(
    stage: Stage,
) -> None:
    stage.book = BOOK_WITH_TERMS
    await put_terms_in_force(stage)
    gold = replace(COMMITTED, sla=SlaTier.GOLD)
    lease = await stage.lease(await stage.organization(), gold)
    await stage.play_until(lease, "ready", seconds_max=90)
    await stage.play(60, step=20)
    (machine,) = stage.cloud.machines.values()
    machine.failed = True
    await stage.play(1_200, step=60)
    machine.failed = False
    await stage.play(3 * 3_600, step=600)
    await stage.release(lease, accept_fee=WHOLE)
    await stage.play(SETTLES_AFTER.total_seconds() + 20, step=10)
    charged = await _charged(stage, lease)
    (_, used, _), (_, rest, _) = charged[False], charged[True]
    assert used + rest < WHOLE, "what failed is free"
    async with stage.db.reading() as connection:
        found = await rows(connection, CREDITED, id=lease.id)
    assert {row.charged_nano for row in found} == {used}
    assert 0 < sum(row.credit_nano for row in found) <= used < rest
    await stage.check()
    await stage.finish()


async def _die(stage: Stage, name: str, when: Literal["before", "after"]) -> None:
    """A loop dies before or after its first commit."""

    async def activation(world: CompleteWorld) -> None:
        await stage.run(name, world=world)

    assert await Crash(at=1, when=when).kills(activation, stage.replica("doomed"))


async def test_nobody_pays_for_a_term_that_ends_for_another_reason_or_never_began(stage: Stage) -> None:
    lease = await _ready(stage)
    await stage.play(7_200, step=3_600)
    await stage.suspend_organization(lease.organization_id, end_leases=True)
    await stage.play(60)
    assert set(await _charged(stage, lease)) == {False}
    assert (await stage.lease_row(lease)).unused_unit_seconds == 0
    assert await _held(stage, lease) == 0
    other = await stage.lease(await stage.organization(), COMMITTED)
    assert other.release_fee(stage.clock.now()) == 0
    await stage.release(other)
    await stage.finish()
    assert await _charged(stage, other) == {}


async def test_a_machine_is_handed_back_in_a_term_only_if_it_is_not_fit(stage: Stage) -> None:
    lease = await _ready(stage)
    await stage.play(60, step=20)
    async with stage.api.db.transaction(lease.organization_id) as connection:
        refused = await repairs.hand_back(
            connection, stage.api, lease.organization_id, lease.id, why="to leave", reach=EVERYWHERE
        )
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.MACHINE_FIT
    await stage.play(60, step=20)
    assert await stage.state(lease) == "ready"
    shows(stage, (await stage.machines(lease))[-1], LOST)
    await machine_samples.sent(stage, lease, Gpu(0, lost=True))
    await stage.play(60, step=5)
    await asked_for_another(stage, lease)
    await stage.play_until(lease, "placing", seconds_max=60)
    await stage.play_until(lease, "ready", seconds_max=300)
    row = await stage.lease_row(lease)
    assert row.committed_until == row.release_at, (
        "the time without a machine is free, and the term is not longer for it"
    )
    assert row.release_fee(stage.clock.now()) > 0


async def test_no_envelope_ends_a_term_however_narrow_its_customer_makes_it(stage: Stage) -> None:
    lease = await _ready(stage)
    narrow = Envelope(gpus=0, purchases=frozenset({PurchaseKind.ON_DEMAND}), ends_after_seconds=600)
    await stage.narrow(lease.organization_id, narrow, Level.ORGANIZATION)
    await stage.play(1_800, step=60)
    assert "lease envelope_warned" in await stage.story(lease)
    assert await stage.state(lease) == "ready"


async def test_a_term_needs_its_whole_price_its_own_days_and_no_other_end(stage: Stage) -> None:
    stage.book = BOOK_WITH_TERMS
    poor = await stage.organization(usd=WHOLE // NANO_PER_USD)
    for request, terms, code in (
        (COMMITTED, None, RefusalCode.BALANCE_TOO_LOW),
        (replace(COMMITTED, committed_days=DAYS + 1), None, RefusalCode.TERM_DIFFERS),
        (replace(COMMITTED, committed_days=None), None, RefusalCode.TERM_DIFFERS),
        (CapacityRequest("h100x1", committed_days=DAYS), None, RefusalCode.TERM_DIFFERS),
        (replace(COMMITTED, sku="h100x8"), None, RefusalCode.PURCHASE_NOT_OFFERED),
        (COMMITTED, LeaseTerms(auto_release=AutoRelease(after_seconds=3_600)), RefusalCode.ENDS_WITH_TERM),
        (COMMITTED, LeaseTerms(on_eviction=OnEviction.REPLACE), RefusalCode.REPLACEMENT_NEEDS_SPOT),
    ):
        refused = await stage.try_lease(poor, request, terms=terms)
        assert isinstance(refused, Refused)
        assert refused.code is code, (request, terms)
    lease = await _ready(stage)
    async with stage.db.transaction(lease.organization_id) as connection:
        changed = await change(
            connection,
            stage.api,
            lease.organization_id,
            lease.id,
            Changes(auto_release=AutoRelease(after_seconds=86_400)),
            actor=CUSTOMER,
            reach=EVERYWHERE,
        )
    assert isinstance(changed, Refused)
    assert changed.code is RefusalCode.ENDS_WITH_TERM


async def test_the_limit_of_a_month_counts_what_the_month_can_use_of_a_term(stage: Stage) -> None:
    stage.book = tuple(
        replace(price, committed_days=100) if price.committed_days else price for price in BOOK_WITH_TERMS
    )
    organization_id = await stage.organization(usd=100_000)
    left = 10.5 * 24 * TERM_PRICE  # From the 20th at noon to the end of November.
    request = replace(COMMITTED, committed_days=100)
    await stage.narrow(organization_id, Envelope(spend_nano_per_month=Nano(int(left) - NANO_PER_USD)))
    refused = await stage.try_lease(organization_id, request)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.SPEND_LIMIT_REACHED
    await stage.narrow(organization_id, Envelope(spend_nano_per_month=Nano(int(left) + 4 * NANO_PER_USD)))
    lease = await stage.lease(organization_id, request)
    await stage.play_until(lease, "ready")
    await stage.play(3 * 3_600, step=600)
    assert await _held(stage, lease) > 2_000 * NANO_PER_USD
    one_more = await stage.try_lease(organization_id, CapacityRequest("h100x1"))
    assert isinstance(one_more, Lease), "the month still has room for an hour"
    refused = await stage.try_lease(organization_id, CapacityRequest("h100x1"))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.SPEND_LIMIT_REACHED


async def _pays(
    stage: Stage, organization_id: OrganizationId, usd: int, payment: str = "pay-1", *, back: bool = False
) -> None:
    """A customer pays, or its bank takes money of the payment back."""
    at, kind = stage.clock.now(), PaymentEventKind.CHARGED_BACK if back else PaymentEventKind.SUCCEEDED
    event = PaymentEvent(f"evt-{at:%d%H%M%S}", kind, organization_id, payment, Nano(usd * NANO_PER_USD), at)
    assert await payments.take(stage.api, event) is True
    await stage.play(60, step=15)


async def _gets_credit(
    stage: Stage, organization_id: OrganizationId, usd: int, *, platform: OrganizationId
) -> None:
    """Finance sets the customer's credit limit."""
    terms = CreditTerms(Nano(usd * NANO_PER_USD), 30, "contract 17", stage.clock.now(), "sa_1")
    assert await credit_terms.put(stage.api, organization_id, terms, platform=platform) is None
    await stage.play(60, step=15)


async def _paid_for(stage: Stage) -> Lease:
    """A lease with a term that is two hours old, and that its customer has paid with one payment of 600 USD."""
    stage.book = BOOK_WITH_TERMS
    organization_id = await stage.organization(usd=4)
    await _pays(stage, organization_id, 600)
    lease = await stage.lease(organization_id, COMMITTED)
    await stage.play_until(lease, "ready")
    await stage.play(2 * 3_600, step=600)
    return await stage.lease_row(lease)


async def _balance(stage: Stage, lease: Lease) -> Nano:
    return (await stage.organization_row(lease.organization_id)).posted_nano


async def _warned(stage: Stage, lease: Lease) -> bool:
    """Whether its customer was warned that its money runs out."""
    async with stage.db.reading() as connection:
        return (await rows(connection, WARNED, id=lease.id))[0].warned is True


async def _set_aside(stage: Stage, lease: Lease) -> Nano:
    async with stage.db.reading() as connection:
        return await holds.set_aside(connection, lease.id)


async def test_a_term_whose_money_is_charged_back_runs_for_an_hour_and_ends_without_a_fee(
    stage: Stage,
) -> None:
    lease, hour = await _paid_for(stage), accrued(TERM_PRICE, 3_600)
    assert await _set_aside(stage, lease) == WHOLE
    await _pays(stage, lease.organization_id, 600, back=True)
    left = await _balance(stage, lease)
    assert left < 0, "what was used is lost"
    assert hour <= await _held(stage, lease) < 2 * hour
    refused = await stage.try_lease(lease.organization_id, name="another")
    assert isinstance(refused, Refused)
    assert await stage.state(lease) == "ready"
    await stage.check()

    await stage.play(40 * 60, step=60)
    assert (await stage.state(lease), await _warned(stage, lease)) == ("ready", True)
    await stage.play(30 * 60, step=60)
    ended = await stage.lease_row(lease)
    assert (ended.end_reason, ended.unused_unit_seconds) == ("unfunded", 0)
    await stage.finish()
    assert set(await _charged(stage, lease)) == {False}
    assert left - hour * 2 < await _balance(stage, lease) < left, "the hour, and what was not posted yet"
    assert await _held(stage, lease) == 0


async def test_what_is_lost_of_a_term_shortens_it_until_it_is_paid_again(stage: Stage) -> None:
    lease = await _paid_for(stage)
    await _pays(stage, lease.organization_id, 200, back=True)
    assert await _set_aside(stage, lease) == Nano(404 * NANO_PER_USD), "what there is"
    await stage.play(DAY.total_seconds(), step=3_600)
    assert (await stage.state(lease), await _warned(stage, lease)) == ("ready", False)
    await _pays(stage, lease.organization_id, 100, "pay-2")
    assert await _set_aside(stage, lease) == Nano(404 * NANO_PER_USD), "not enough for the whole term"
    await stage.check()
    await _pays(stage, lease.organization_id, 100, "pay-3")
    assert await _set_aside(stage, lease) == WHOLE
    await stage.suspend_organization(lease.organization_id, end_leases=True)
    await stage.finish()


async def test_a_term_on_credit_is_shortened_to_the_limit_that_finance_lowered_and_is_whole_when_it_is_raised_again(
    stage: Stage,
) -> None:
    stage.book = BOOK_WITH_TERMS
    organization_id, platform = await stage.organization(usd=4), await stage.operators()
    await _gets_credit(stage, organization_id, 600, platform=platform)
    lease = await stage.lease(organization_id, COMMITTED)
    await stage.play_until(lease, "ready")
    await stage.play(2 * 3_600, step=600)
    assert await _set_aside(stage, lease) == WHOLE
    await _gets_credit(stage, organization_id, 400, platform=platform)
    assert await _set_aside(stage, lease) == Nano(404 * NANO_PER_USD), "what the balance and the limit cover"
    assert (await stage.state(lease), await _warned(stage, lease)) == ("ready", False)
    await stage.check()
    await _gets_credit(stage, organization_id, 600, platform=platform)
    assert await _set_aside(stage, lease) == WHOLE
    await _gets_credit(stage, organization_id, 0, platform=platform)
    await stage.play(2 * 3_600, step=60)
    ended = await stage.lease_row(lease)
    assert (ended.end_reason, ended.unused_unit_seconds) == ("unfunded", 0)
    await _gets_credit(stage, organization_id, 600, platform=platform)  # It owes what it used.
    await stage.finish()
    assert set(await _charged(stage, lease)) == {False}


def test_the_price_of_a_term_is_of_the_book() -> None:
    term = next(price for price in BOOK_WITH_TERMS if price.committed_days is not None)
    bought = term.bought(PurchaseKind.COMMITTED)
    assert isinstance(bought, Price)
    assert (bought.nano_per_unit_hour, bought.term_days, bought.stopped_nano) == (
        TERM_PRICE,
        DAYS,
        TERM_PRICE,
    )
