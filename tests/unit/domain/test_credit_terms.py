"""What a postpaid customer may use, and what its invoices leave to pay."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.credit_note import Correction, less_owed
from control_plane.domain.credit_terms import CreditTerms, left, on_account
from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import UNCORRECTED, Credited, Invoice
from control_plane.domain.money import NANO_PER_CENT, Nano
from tests.support.cases import case
from tests.support.clock import START

AMOUNTS = st.integers(0, 10**14).map(Nano)
SIGNED = st.integers(-(10**14), 10**14).map(Nano)
INVOICE = Invoice(
    organization_id=OrganizationId(UUID(int=1)),
    issuer="main",
    period=START,
    seller="Neocloud Ltd",
    seller_address=(),
    seller_tax_id=None,
    legal_name="Heliotrope GmbH",
    address=(),
    country="DE",
    tax_id=None,
    tax_rate=1_900,
    reverse_charge=False,
    usage_nano=Nano(100 * NANO_PER_CENT),
    credits_nano=Nano(0),
    adjustment_nano=Nano(0),
    subtotal_cents=100,
    tax_cents=19,
    paid_cents=30,
    payment_days=14,
    issued_at=START,
)
NOTE = Correction((), net_cents=50, tax_cents=9, credits_nano=Nano(0))


def test_terms_have_bounds() -> None:
    terms = CreditTerms(Nano(0), 0, "contract 17", START, "sa_1")
    for limit, days in ((-1, 0), (0, -1), (0, 121)):
        with case(limit, days), pytest.raises(ValueError, match="days are given to pay"):
            replace(terms, limit_nano=Nano(limit), payment_days=days)


@given(limit=AMOUNTS, due=SIGNED)
def test_what_is_left_of_a_limit_is_never_more_than_the_limit_nor_negative(limit: Nano, due: Nano) -> None:
    assert 0 <= left(limit, due) <= limit
    assert left(limit, due) == limit - due or due < 0 or due > limit


@given(subtotal=AMOUNTS, at_end=SIGNED, now=SIGNED)
def test_an_invoice_leaves_to_pay_what_the_balance_lacked_at_the_end_of_the_month_and_still_lacks(
    subtotal: Nano, at_end: Nano, now: Nano
) -> None:
    owed = on_account(subtotal, at_end=at_end, now=now)
    assert 0 <= owed <= subtotal
    assert not (owed and (at_end >= 0 or now >= 0)), "the balance covers it"
    assert not owed or now + owed <= 0, "it gives back no more than the balance lacks"


@given(use=st.lists(st.integers(0, 10**12).map(Nano), min_size=1, max_size=6), limit=AMOUNTS)
def test_what_a_customer_may_use_does_not_change_when_its_use_is_invoiced(
    use: list[Nano], limit: Nano
) -> None:
    wallet = -sum(use)
    before = wallet + left(limit, Nano(0))
    owed = on_account(Nano(sum(use)), at_end=Nano(wallet), now=Nano(wallet))
    after = wallet + owed + left(limit, owed)
    assert owed == sum(use)
    assert after == max(0, before), "within the limit, it stays the same"


def test_an_invoice_is_due_after_its_days_and_credit_notes_lower_it_by_what_was_not_paid_first() -> None:
    assert (INVOICE.on_account_cents, INVOICE.due_cents) == (70, 89)
    assert INVOICE.due_at == START + timedelta(days=14)
    assert replace(INVOICE, paid_cents=119).due_at is None, "nothing is left to pay"
    for net, tax, left_to_pay in ((0, 0, 89), (50, 9, 30), (70, 13, 6), (100, 19, 0)):
        with case(net):
            assert INVOICE.left_cents(Credited(net_cents=net, tax_cents=tax)) == left_to_pay
    for note, before, owed, cents in (
        (NOTE, UNCORRECTED, 89, 59),
        (NOTE, Credited(net_cents=50), 89, 29),
        (NOTE, Credited(net_cents=70), 89, 9),
        (NOTE, UNCORRECTED, 10, 10),
        (NOTE, UNCORRECTED, 5, 5),
        (NOTE, UNCORRECTED, -10, 0),
    ):
        with case(before.net_cents, owed):
            assert (
                less_owed(INVOICE, note, before=before, owed=Nano(owed * NANO_PER_CENT))
                == cents * NANO_PER_CENT
            )
