"""Invoices add up: their lines are the charges to the nano, and what is printed is whole cents."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import ledger
from control_plane.domain.ids import OrganizationId, ProjectId
from control_plane.domain.invoice import (
    TAX_RATE_MAX,
    UNCORRECTED,
    BillingDetails,
    GivenCredit,
    InvoiceState,
    LineKind,
    Seller,
    Usage,
    document_number,
    draft,
    draft_refusal,
    issue_refusal,
    tax,
)
from control_plane.domain.ledger import AccountKind
from control_plane.domain.money import NANO_PER_CENT, NANO_PER_USD, Nano, in_whole_cents
from control_plane.domain.period import MAIN_ISSUER, Period, PeriodState
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.sku import Unit
from control_plane.domain.sla import SlaTier
from control_plane.wire import invoices as wire

OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
CLOSED = Period(MAIN_ISSUER, OCTOBER, PeriodState.CLOSED)
ACME = OrganizationId(UUID(int=1))
SELLER = Seller("Neocloud Ltd", ("1 Quay Street", "Galway"), "IE6388047V")
BUYER = BillingDetails(
    legal_name="Acme GmbH",
    address=("Hafen 1", "20457 Hamburg"),
    country="DE",
    tax_id="DE811907980",
    tax_rate=1_900,
    reverse_charge=False,
)
USED = Usage(
    project_id=ProjectId(UUID(int=2)),
    project="research",
    sku="h100x1",
    purchase=PurchaseKind.ON_DEMAND,
    sla=SlaTier.BRONZE,
    stopped=False,
    unused=False,
    unit=Unit.GPU,
    nano_per_unit_hour=Nano(2_490_000_000),
    used_in=OCTOBER,
    unit_seconds=3_600,
    amount_nano=Nano(2_490_000_000),
)
AMOUNTS = st.lists(st.integers(0, 10**16).map(Nano), min_size=1, max_size=12)


@given(amounts=AMOUNTS, unused=st.integers(-(10**12), 10**17), rate=st.integers(0, TAX_RATE_MAX))
def test_the_lines_are_the_charges_to_the_nano_and_add_up_in_cents(
    amounts: list[Nano], unused: int, rate: int
) -> None:
    usage = [replace(USED, amount_nano=amount) for amount in amounts]
    buyer = replace(BUYER, tax_rate=rate)
    invoice, lines = draft(ACME, CLOSED, seller=SELLER, buyer=buyer, usage=usage, unused_credits=Nano(unused))
    exact = {kind: sum(line.amount_nano for line in lines if line.kind is kind) for kind in LineKind}
    assert exact[LineKind.USAGE] == sum(amounts) == invoice.usage_nano
    assert -exact[LineKind.CREDIT] == invoice.credits_nano == min(unused, sum(amounts))
    assert exact[LineKind.ADJUSTMENT] == invoice.adjustment_nano
    assert -NANO_PER_CENT < invoice.adjustment_nano <= 0
    assert sum(line.amount_nano for line in lines) == invoice.subtotal_cents * NANO_PER_CENT
    assert sum(line.cents for line in lines) == invoice.subtotal_cents >= 0
    assert all(abs(line.cents * NANO_PER_CENT - line.amount_nano) < NANO_PER_CENT for line in lines)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert (invoice.due_cents, invoice.paid_cents) == (invoice.tax_cents, invoice.subtotal_cents)


@given(amounts=AMOUNTS, rate=st.integers(0, TAX_RATE_MAX))
def test_what_an_invoice_posts_leaves_the_wallet_short_of_the_printed_amount_and_tax_owed(
    amounts: list[Nano], rate: int
) -> None:
    usage = [replace(USED, amount_nano=amount) for amount in amounts]
    buyer = replace(BUYER, tax_rate=rate)
    invoice, _ = draft(ACME, CLOSED, seller=SELLER, buyer=buyer, usage=usage, unused_credits=Nano(0))
    posted = ledger.invoice(
        ACME,
        invoice_id=UUID(int=9),
        tax=Nano(invoice.tax_cents * NANO_PER_CENT),
        adjustment=invoice.adjustment_nano,
        at=OCTOBER,
    )
    moved = {kind: Nano(0) if posted is None else posted.posted_to(kind) for kind in AccountKind}
    assert sum(amounts) - moved[AccountKind.WALLET] == invoice.paid_cents * NANO_PER_CENT
    assert -moved[AccountKind.RECEIVABLE] == invoice.due_cents * NANO_PER_CENT
    assert moved[AccountKind.TAX_PAYABLE] == invoice.tax_cents * NANO_PER_CENT


def test_the_cents_of_three_thirds_add_up_to_the_whole() -> None:
    third = Nano(33_333_333_333)
    assert in_whole_cents([third, third, Nano(33_333_333_334)]) == (3_333, 3_333, 3_334)
    assert in_whole_cents([]) == ()


def test_tax_rounds_half_a_cent_up() -> None:
    assert [tax(cents, 1_900) for cents in (0, 1, 50, 100, 250)] == [0, 0, 10, 19, 48]
    assert tax(14_34123, 1_900) == 272_483
    with pytest.raises(ValueError, match="negative"):
        tax(-1, 1_900)


def test_a_correction_says_in_which_month_the_time_was_used() -> None:
    september = datetime(2026, 9, 1, tzinfo=UTC)
    usage = [USED, replace(USED, used_in=september)]
    _, lines = draft(ACME, CLOSED, seller=SELLER, buyer=BUYER, usage=usage, unused_credits=Nano(0))
    assert [line.used_in for line in lines] == [OCTOBER, september]


def test_only_credits_that_a_later_invoice_will_use_pay_nothing_of_this_one() -> None:
    """A dollar was used on credit, and a dollar credited in the next month. None, a part, or all of it is used since."""
    used = replace(USED, amount_nano=Nano(NANO_PER_USD))
    for used_since in (0, 400_000_000, NANO_PER_USD):
        invoice, _ = draft(
            ACME,
            CLOSED,
            seller=SELLER,
            buyer=BUYER,
            usage=[used],
            unused_credits=Nano(0),
            balance_at_end=Nano(-NANO_PER_USD),
            balance_now=Nano(-used_since),
            unspent_credits=Nano(NANO_PER_USD - used_since),
        )
        assert (invoice.paid_cents, invoice.on_account_cents) == (0, 100), used_since


def test_without_usage_there_is_no_draft() -> None:
    with pytest.raises(ValueError, match="nothing to invoice"):
        draft(ACME, CLOSED, seller=SELLER, buyer=BUYER, usage=[], unused_credits=Nano(5))


def test_credits_that_were_corrected_after_an_invoice_used_them_are_invoiced_by_the_latest_corrections() -> (
    None
):
    """Also where nothing was used in the month: the customer may have left."""
    cents = Nano(NANO_PER_CENT)
    given = [
        GivenCredit(id=UUID(int=1), left_nano=Nano(-30 * cents), reason="first"),
        GivenCredit(id=UUID(int=2), left_nano=Nano(50 * cents), reason="another credit"),
        GivenCredit(id=UUID(int=3), left_nano=Nano(-20 * cents), reason="second"),
    ]
    for usage in ([], [replace(USED, amount_nano=Nano(100 * cents))]):
        used = 100 * len(usage)
        invoice, lines = draft(
            ACME,
            CLOSED,
            seller=SELLER,
            buyer=BUYER,
            usage=usage,
            unused_credits=Nano(-45 * cents),
            given=given,
            balance_at_end=Nano(-(used + 45) * cents),
            balance_now=Nano(-(used + 45) * cents),
            unspent_credits=Nano(-45 * cents),
        )
        taken = [(line.reason, line.cents) for line in lines if line.kind is LineKind.CREDIT]
        assert taken == [("second", 20), ("first", 25)]
        assert (invoice.subtotal_cents, invoice.paid_cents) == (used + 45, 0)
        assert invoice.tax_cents == tax(used + 45, BUYER.tax_rate)


def test_a_draft_becomes_issued_by_its_number() -> None:
    invoice, _ = draft(ACME, CLOSED, seller=SELLER, buyer=BUYER, usage=[USED], unused_credits=Nano(0))
    number = document_number("INV", 2026, 1)
    issued = invoice.issued(UUID(int=3), number, at=OCTOBER, by="sa_1")
    assert (invoice.state(UNCORRECTED), issued.state(UNCORRECTED)) == (
        InvoiceState.DRAFT,
        InvoiceState.ISSUED,
    )
    assert (issued.number, document_number("A", 2027, 1_234_567)) == ("INV-2026-000001", "A-2027-1234567")


def test_only_a_closed_month_is_invoiced_and_one_that_has_begun_is_drafted() -> None:
    for state in PeriodState:
        refused = issue_refusal(replace(CLOSED, state=state))
        assert (refused is None) == (state is PeriodState.CLOSED)
        assert refused is None or refused.code is RefusalCode.PERIOD_NOT_CLOSED
    assert draft_refusal(CLOSED, OCTOBER) is None
    early = draft_refusal(CLOSED, datetime(2026, 9, 30, tzinfo=UTC))
    assert early is not None
    assert early.code is RefusalCode.PERIOD_IN_FUTURE


def test_a_rate_has_bounds_and_a_reverse_charge_has_none() -> None:
    assert wire.TAX_RATE_MAX == TAX_RATE_MAX
    for wrong in (
        {"tax_rate": -1},
        {"tax_rate": TAX_RATE_MAX + 1},
        {"reverse_charge": True},
        {"reverse_charge": True, "tax_rate": 0, "tax_id": None},
    ):
        with pytest.raises(ValueError, match="tax rate"):
            replace(BUYER, **wrong)
