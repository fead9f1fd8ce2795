"""Credit notes add up: whichever lines they correct in whichever parts, in the end everything was given back once."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import ledger
from control_plane.domain.credit_note import (
    Correction,
    CreditNote,
    LineToCredit,
    correction,
    credited_by,
    less_owed,
)
from control_plane.domain.invoice import (
    UNCORRECTED,
    Credited,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LineKind,
    draft,
    tax,
)
from control_plane.domain.ledger import AccountKind, Approval
from control_plane.domain.money import NANO_PER_CENT, Nano
from control_plane.domain.refusal import RefusalCode, Refused
from tests.unit.domain.test_invoice import ACME, BUYER, CLOSED, OCTOBER, SELLER, USED

NOVEMBER = datetime(2026, 11, 5, tzinfo=UTC)
DECIDED = Approval("user_1", "ticket 4711")


def an_invoice(
    amounts: list[int], credits_used: int, rate: int = 1_900
) -> tuple[Invoice, tuple[InvoiceLine, ...]]:
    invoice, lines = draft(
        ACME,
        CLOSED,
        seller=SELLER,
        buyer=replace(BUYER, tax_rate=rate),
        usage=[replace(USED, amount_nano=Nano(amount)) for amount in amounts],
        unused_credits=Nano(credits_used),
    )
    return invoice.issued(UUID(int=3), "INV-2026-000001", at=OCTOBER, by="user_1"), lines


def a_note(found: Correction, less_owed: int = 0) -> CreditNote:
    return CreditNote(
        id=UUID(int=5),
        organization_id=ACME,
        invoice_id=UUID(int=3),
        issuer="main",
        number="CN-2026-000001",
        credited_cents=found.credited_cents,
        net_cents=found.net_cents,
        tax_cents=found.tax_cents,
        credits_nano=found.credits_nano,
        to_wallet_nano=Nano(found.given_back_nano - less_owed),
        reason=DECIDED.reason,
        issued_at=NOVEMBER,
        issued_by=DECIDED.by,
    )


def posted(note: CreditNote) -> ledger.Transaction:
    return ledger.credit_note(
        ACME,
        credit_note_id=note.id,
        credited=Nano(note.credited_cents * NANO_PER_CENT),
        to_wallet=note.to_wallet_nano,
        to_receivable=note.less_owed_nano,
        tax=Nano(note.tax_cents * NANO_PER_CENT),
        at=NOVEMBER,
        approval=DECIDED,
    )


@given(
    amounts=st.lists(st.integers(0, 10**12), min_size=1, max_size=5),
    credits_used=st.integers(-(10**12), 10**12),
    rate=st.integers(0, 5_000),
    parts=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 10**5)), max_size=6),
    share=st.fractions(0, 1),
)
def test_in_whichever_parts_an_invoice_is_corrected_all_of_it_is_given_back_once(
    amounts: list[int], credits_used: int, rate: int, parts: list[tuple[int, int]], share: Fraction
) -> None:
    """Whatever the customer has paid of it: a negative `credits_used` takes back what an earlier invoice used."""
    invoice, lines = an_invoice(amounts, credits_used, rate)
    owed = at_first = int(invoice.due_cents * NANO_PER_CENT * share)
    notes: list[CreditNote] = []
    of_lines: Counter[int] = Counter()

    def correct(asked: list[LineToCredit] | None) -> None:
        before = credited_by(notes)
        found = correction(invoice, lines, before=before, credited_lines=of_lines, asked=asked)
        if isinstance(found, Refused):
            return
        nonlocal owed
        less = less_owed(invoice, found, before=before, owed=Nano(owed))
        notes.append(a_note(found, less))
        owed -= less
        assert owed >= 0, "nobody is owed what stands on no wallet"
        of_lines.update({line.invoice_line: line.cents for line in found.lines})
        left = invoice.subtotal_cents - credited_by(notes).net_cents
        assert invoice.tax_cents - credited_by(notes).tax_cents == tax(left, rate), (
            "tax is owed on what is left"
        )
        assert posted(notes[-1]).posted_to(AccountKind.REVENUE) == 0

    for number, cents in parts:
        correct([LineToCredit(number, cents)])
        if notes and sum(of_lines.values()) < sum(line.cents for line in lines if _is_creditable(line)):
            assert invoice.state(credited_by(notes)) is InvoiceState.ISSUED
    correct(None)

    for line in lines:
        assert of_lines[line.number] == (line.cents if _is_creditable(line) else 0)
    printed = sum(of_lines.values())
    if not printed:
        assert notes == []
        return
    assert credited_by(notes) == Credited(
        net_cents=invoice.subtotal_cents,
        tax_cents=invoice.tax_cents,
        credits_nano=Nano(max(0, invoice.credits_nano)),
    )
    assert invoice.state(credited_by(notes)) is InvoiceState.VOIDED
    moved = {kind: sum(posted(note).posted_to(kind) for note in notes) for kind in AccountKind}
    taken_back = max(0, -invoice.credits_nano)
    given_back = sum(amounts) + taken_back + invoice.adjustment_nano + invoice.tax_cents * NANO_PER_CENT
    assert moved[AccountKind.WALLET] + moved[AccountKind.RECEIVABLE] == given_back
    assert moved[AccountKind.RECEIVABLE] == at_first - owed
    assert owed == 0 or owed < NANO_PER_CENT or invoice.on_account_cents == 0, (
        "the unpaid part is owed no more"
    )
    assert moved[AccountKind.CREDITS] == -printed * NANO_PER_CENT
    assert abs(moved[AccountKind.ROUNDING]) < NANO_PER_CENT
    assert -moved[AccountKind.TAX_PAYABLE] == invoice.tax_cents * NANO_PER_CENT


def _is_creditable(line: InvoiceLine) -> bool:
    return line.kind is LineKind.USAGE or (line.kind is LineKind.CREDIT and line.amount_nano > 0)


def test_tax_that_was_paid_goes_to_the_balance_and_tax_that_is_owed_is_owed_no_more() -> None:
    invoice, lines = an_invoice([100 * NANO_PER_CENT], 0)
    found = correction(invoice, lines, before=UNCORRECTED, credited_lines={}, asked=None)
    assert isinstance(found, Correction)
    for owed, wallet, receivable in ((0, 119, 0), (7, 112, 7), (19, 100, 19), (500, 100, 19)):
        less = less_owed(invoice, found, before=UNCORRECTED, owed=Nano(owed * NANO_PER_CENT))
        transaction = posted(a_note(found, less))
        moved = [transaction.posted_to(kind) for kind in (AccountKind.WALLET, AccountKind.RECEIVABLE)]
        assert moved == [wallet * NANO_PER_CENT, receivable * NANO_PER_CENT], owed
        assert transaction.posted_to(AccountKind.TAX_PAYABLE) == -19 * NANO_PER_CENT


def test_what_was_used_of_credits_is_given_back_last_untaxed_and_as_credit() -> None:
    invoice, lines = an_invoice([10_000_000_000], 4_000_000_000)
    first = correction(invoice, lines, before=UNCORRECTED, credited_lines={}, asked=[LineToCredit(1, 500)])
    assert isinstance(first, Correction)
    assert (first.net_cents, first.tax_cents, first.credits_nano) == (500, 95, 0)
    second = correction(
        invoice, lines, before=credited_by([a_note(first)]), credited_lines={1: 500}, asked=None
    )
    assert isinstance(second, Correction)
    assert (second.net_cents, second.tax_cents, second.credits_nano) == (100, 19, 4_000_000_000)


def test_the_tax_of_parts_adds_up_to_the_tax_of_the_whole() -> None:
    invoice, lines = an_invoice([1_000_000_000], 0, rate=500)
    assert invoice.tax_cents == 5
    notes: list[CreditNote] = []
    for part in range(10):
        found = correction(
            invoice,
            lines,
            before=credited_by(notes),
            credited_lines={1: 10 * part},
            asked=[LineToCredit(1, 10)],
        )
        assert isinstance(found, Correction)
        notes.append(a_note(found))
    assert sum(note.tax_cents for note in notes) == 5, "each part by itself rounds up to a cent"


def test_a_line_is_corrected_by_no_more_than_is_left_of_it() -> None:
    invoice, lines = an_invoice([10_000_000_000, 2_500_000_000, 1], 4_000_000_000)
    kinds = {line.number: line.kind.value for line in lines}
    assert kinds == {1: "usage", 2: "usage", 3: "usage", 4: "credit", 5: "adjustment"}
    for asked, code in (
        (LineToCredit(1, 301), RefusalCode.CREDIT_EXCEEDS_LINE),
        (LineToCredit(2, None), RefusalCode.CREDIT_EXCEEDS_LINE),
        (LineToCredit(3, None), RefusalCode.CREDIT_EXCEEDS_LINE),
        (LineToCredit(4, 1), RefusalCode.LINE_NOT_CREDITABLE),
        (LineToCredit(5, None), RefusalCode.LINE_NOT_CREDITABLE),
        (LineToCredit(6, None), RefusalCode.LINE_NOT_CREDITABLE),
    ):
        refused = correction(
            invoice, lines, before=UNCORRECTED, credited_lines={1: 700, 2: 250}, asked=[asked]
        )
        assert isinstance(refused, Refused), asked
        assert refused.code is code, asked
    spent = correction(invoice, lines, before=UNCORRECTED, credited_lines={1: 1_000, 2: 250}, asked=None)
    assert isinstance(spent, Refused)
    assert spent.code is RefusalCode.NOTHING_TO_CREDIT


def test_a_line_is_named_once() -> None:
    invoice, lines = an_invoice([10_000_000_000], 0)
    twice = [LineToCredit(1, 600), LineToCredit(1, 600)]
    with pytest.raises(ValueError, match="twice"):
        correction(invoice, lines, before=UNCORRECTED, credited_lines={}, asked=twice)


def test_an_invoice_without_a_cent_is_not_void_and_cannot_be_corrected() -> None:
    invoice, lines = an_invoice([1], 0)
    assert invoice.state(UNCORRECTED) is InvoiceState.ISSUED
    refused = correction(invoice, lines, before=UNCORRECTED, credited_lines={}, asked=None)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.NOTHING_TO_CREDIT
