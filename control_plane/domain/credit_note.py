"""Credit notes: what corrects an issued invoice, in whole or in part.

An invoice is never edited. A credit note names the lines that it corrects, each by no more than what is left of it, and
gives back what they cost, with the tax of it: what is still due of it is due no more, and what the customer had paid
goes to its balance. Nobody was taxed for what was used of credits. That part of an invoice is given back last, and is
credit again.

Tax is a difference of totals: what is left of the tax is always the tax on what is left of the subtotal. An invoice
that is credited in whole is voided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import Credited, Invoice, InvoiceLine, LineKind, tax
from control_plane.domain.money import NANO_PER_CENT, NOTHING, Nano, dollars
from control_plane.domain.refusal import RefusalCode, Refused


@dataclass(frozen=True, slots=True)
class LineToCredit:
    """By how much somebody wants to correct a line of an invoice."""

    invoice_line: int
    """The number of the line."""
    cents: int | None
    """None for all that is left of it."""


@dataclass(frozen=True, slots=True)
class CreditNoteLine:
    number: int
    """From 1."""
    invoice_line: int
    """The number of the line that it corrects."""
    cents: int
    """By how much. More than zero."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What a credit note comes to."""

    lines: tuple[CreditNoteLine, ...]
    net_cents: int
    """By how much it lowers the taxable amount."""
    tax_cents: int
    credits_nano: Nano
    """What the customer gets back as credit: it was used of credits."""

    @property
    def credited_cents(self) -> int:
        """The sum of its lines."""
        return sum(line.cents for line in self.lines)

    @property
    def given_back_nano(self) -> Nano:
        """What the customer gets back, or owes less."""
        return Nano((self.net_cents + self.tax_cents) * NANO_PER_CENT + self.credits_nano)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditNote:
    """A credit note as it was issued. It has the seller and the buyer of its invoice."""

    id: UUID
    organization_id: OrganizationId
    invoice_id: UUID
    issuer: str
    number: str
    credited_cents: int
    """The sum of its lines."""
    net_cents: int
    """By how much it lowers the taxable amount."""
    tax_cents: int
    credits_nano: Nano
    """What the customer got back as credit."""
    to_wallet_nano: Nano
    """What went to the balance."""
    reason: str
    issued_at: datetime
    issued_by: str
    """The id of the subject that decided on it."""

    @property
    def total_cents(self) -> int:
        """By how much it lowers the total of the invoice."""
        return self.net_cents + self.tax_cents

    @property
    def less_owed_nano(self) -> Nano:
        """What is owed less. The rest of what it gives back went to the balance."""
        return Nano(self.total_cents * NANO_PER_CENT + self.credits_nano - self.to_wallet_nano)


def credited_by(notes: Sequence[CreditNote]) -> Credited:
    """What the credit notes of an invoice come to together."""
    return Credited(
        net_cents=sum(note.net_cents for note in notes),
        tax_cents=sum(note.tax_cents for note in notes),
        credits_nano=Nano(sum(note.credits_nano for note in notes)),
    )


def correction(
    invoice: Invoice,
    lines: Sequence[InvoiceLine],
    *,
    before: Credited,
    credited_lines: Mapping[int, int],
    asked: Sequence[LineToCredit] | None,
) -> Correction | Refused:
    """What a credit note comes to; `asked` is None for all that is left of the invoice.

    `before` is what earlier credit notes came to, and `credited_lines` by how many cents they corrected each line.
    Refused for a line that is not there, or neither is usage nor takes a credit back, and for more than is left of a
    line. Raises ValueError for a line that is named twice.
    """
    if asked is not None and len({line.invoice_line for line in asked}) < len(asked):
        raise ValueError("a line is named twice")
    left = {
        line.number: line.cents - credited_lines.get(line.number, 0)
        for line in lines
        if line.kind is LineKind.USAGE or (line.kind is LineKind.CREDIT and line.amount_nano > 0)
    }
    if not any(left.values()):
        return Refused(RefusalCode.NOTHING_TO_CREDIT, f"Nothing is left of {invoice.number}.")
    if asked is None:
        asked = [LineToCredit(number, None) for number, cents in left.items() if cents]
    refused = next((found for line in asked if (found := _refusal(line, left)) is not None), None)
    if refused is not None:
        return refused
    made = tuple(
        CreditNoteLine(
            number, line.invoice_line, left[line.invoice_line] if line.cents is None else line.cents
        )
        for number, line in enumerate(asked, start=1)
    )
    credited = sum(line.cents for line in made)
    taxed = invoice.subtotal_cents - before.net_cents
    net = min(credited, taxed)
    whole = credited == sum(left.values())
    return Correction(
        made,
        net_cents=net,
        tax_cents=tax(taxed, invoice.tax_rate) - tax(taxed - net, invoice.tax_rate),
        # What is printed of the credits is in whole cents. With the last of the invoice, they are given back exactly.
        credits_nano=Nano(max(NOTHING, invoice.credits_nano) - before.credits_nano)
        if whole
        else Nano((credited - net) * NANO_PER_CENT),
    )


def _refusal(line: LineToCredit, left: Mapping[int, int]) -> Refused | None:
    number = line.invoice_line
    if number not in left:
        return Refused(
            RefusalCode.LINE_NOT_CREDITABLE, f"Line {number} is no line with usage, and takes no credit back."
        )
    if (left[number] if line.cents is None else line.cents) > left[number] or not left[number]:
        remains = dollars(Nano(left[number] * NANO_PER_CENT))
        return Refused(
            RefusalCode.CREDIT_EXCEEDS_LINE, f"{remains} USD is left of line {number}; credit no more."
        )
    return None


def less_owed(invoice: Invoice, found: Correction, *, before: Credited, owed: Nano) -> Nano:
    """What of a credit note the customer owes less. The rest, which it had paid, goes to the balance.

    `before` is what earlier credit notes of the invoice come to, and `owed` what the customer owes by its invoices. The
    tax of it comes first: no balance pays tax. After it comes what the balance had not paid of the subtotal.
    """
    tax_owed = max(NOTHING, min(found.tax_cents * NANO_PER_CENT, owed))
    unpaid = max(0, invoice.on_account_cents - before.net_cents)
    net_owed = max(0, min(found.net_cents, unpaid, (owed - tax_owed) // NANO_PER_CENT))
    return Nano(tax_owed + net_owed * NANO_PER_CENT)
