"""Invoices: what a customer used in a month, as a document in whole cents with tax.

The lines are exact, in nano-US-dollars, and printed in whole cents that add up. The total is rounded down to whole
cents, so that the customer gains by it, and the line `adjustment` says by how much. An invoice has a draft, which is
computed whenever somebody asks for it and stored nowhere, and is never edited once it is issued.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.credit_terms import on_account
from control_plane.domain.ids import LeaseId, OrganizationId, ProjectId
from control_plane.domain.money import NANO_PER_CENT, NOTHING, Nano, in_whole_cents
from control_plane.domain.period import Period, PeriodState
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import Unit
from control_plane.domain.sla import SlaTier

BASIS_POINTS = 10_000
"""In one whole."""
TAX_RATE_MAX = 5_000
"""In basis points. The highest rate of the European Union is 27 % (Hungary)."""


class DocumentSeries(StrEnum):
    """Documents that are numbered without a gap, each series by itself."""

    INVOICE = "invoice"
    CREDIT_NOTE = "credit_note"


def document_number(prefix: str, year: int, number: int) -> str:
    """The number that a document is printed with: `document_number("INV", 2026, 1) == "INV-2026-000001"`."""
    return f"{prefix}-{year}-{number:06d}"


class InvoiceState(StrEnum):
    DRAFT = "draft"
    """What would be issued now. It has no number, and nothing is posted."""
    ISSUED = "issued"
    """It has a number, its tax and rounding are posted, and it is never edited."""
    VOIDED = "voided"
    """Its credit notes cover all of it."""


class LineKind(StrEnum):
    USAGE = "usage"
    """The charges of one project, SKU, kind of purchase, tier and price; for what was not used of a term apart."""
    CREDIT = "credit"
    """What the customer used of a credit, which is money that we gave it without a payment. It lowers the taxable
    amount. With a positive amount, a credit is taken back that an earlier invoice used: it was corrected since then."""
    ADJUSTMENT = "adjustment"
    """What the total is below the exact sum, so that it is in whole cents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingDetails:
    """Who the buyer is, and how it is taxed."""

    legal_name: str
    address: tuple[str, ...]
    """Lines, without the country."""
    country: str
    """Its code of two letters in ISO 3166-1."""
    tax_id: str | None
    tax_rate: int
    """In basis points: 1,900 are 19 %."""
    reverse_charge: bool
    """Whether the buyer owes the tax instead of us. The rate is 0 then."""

    def __post_init__(self) -> None:
        if not 0 <= self.tax_rate <= TAX_RATE_MAX:
            raise ValueError(f"a tax rate is from 0 to {TAX_RATE_MAX} basis points")
        if self.reverse_charge and (self.tax_rate or self.tax_id is None):
            raise ValueError("with reverse charge, the tax rate is 0 and the buyer has a tax id")


@dataclass(frozen=True, slots=True)
class Seller:
    name: str
    address: tuple[str, ...]
    tax_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Charges that are one line of an invoice, added up."""

    project_id: ProjectId
    project: str
    """The name of the project."""
    sku: str
    purchase: PurchaseKind
    sla: SlaTier
    stopped: bool
    """Whether the machines were stopped."""
    unused: bool
    """Whether it is what customers did not use of terms that they had committed to."""
    unit: Unit
    nano_per_unit_hour: Nano
    used_in: datetime
    """The first instant of the month in which the time was used: before the invoice's, it is a correction."""
    unit_seconds: int
    amount_nano: Nano


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCredit:
    """A credit of which something is left that no invoice has used, or the correction of one."""

    id: UUID
    """The transaction that gave it, or the credit note that gave it back."""
    left_nano: Nano
    """Negative for a correction, which no invoice has taken back in whole."""
    reason: str
    project_id: ProjectId | None = None
    project: str | None = None
    lease_id: LeaseId | None = None
    """The lease whose promise was broken; None for another credit."""
    used_in: datetime | None = None
    """The first instant of the month in which that was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceLine:
    number: int
    """From 1."""
    kind: LineKind
    project_id: ProjectId | None = None
    project: str | None = None
    sku: str | None = None
    purchase: PurchaseKind | None = None
    sla: SlaTier | None = None
    stopped: bool | None = None
    unused: bool | None = None
    unit: Unit | None = None
    nano_per_unit_hour: Nano | None = None
    used_in: datetime | None = None
    unit_seconds: int | None = None
    credit_id: UUID | None = None
    """Of a credit, the transaction or the credit note that gave it."""
    lease_id: LeaseId | None = None
    """Of a credit, the lease whose promise was broken."""
    reason: str | None = None
    """Why a credit was given, or corrected."""
    amount_nano: Nano
    """The exact amount."""
    cents: int
    """The printed amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited:
    """What credit notes of an invoice come to together."""

    net_cents: int = 0
    """By how much they lower the taxable amount."""
    tax_cents: int = 0
    credits_nano: Nano = NOTHING
    """What the customer got back as credit."""


UNCORRECTED = Credited()


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoice:
    organization_id: OrganizationId
    issuer: str
    period: datetime
    """The first instant of the month."""
    seller: str
    seller_address: tuple[str, ...]
    seller_tax_id: str | None
    legal_name: str
    address: tuple[str, ...]
    country: str
    tax_id: str | None
    tax_rate: int
    """In basis points."""
    reverse_charge: bool
    usage_nano: Nano
    """The sum of the charges that are booked in the period, as the ledger has it."""
    credits_nano: Nano
    """What of it was used of money that nobody paid in; negative where credits of earlier invoices are taken back."""
    adjustment_nano: Nano
    """From -9,999,999 to 0: makes the subtotal a whole number of cents."""
    subtotal_cents: int
    """The taxable amount: usage, less credits, with the adjustment."""
    tax_cents: int
    paid_cents: int
    """What was paid from the balance, by each charge when it was rated."""
    payment_days: int
    """After how many days it has to be paid."""
    id: UUID | None = None
    """None for a draft, as the three fields that follow."""
    number: str | None = None
    issued_at: datetime | None = None
    issued_by: str | None = None
    """The id of the subject."""

    def state(self, credited: Credited) -> InvoiceState:
        """Where it stands after its credit notes."""
        if self.number is None:
            return InvoiceState.DRAFT
        credits_used = max(NOTHING, self.credits_nano)
        whole = (credited.net_cents, credited.credits_nano) == (self.subtotal_cents, credits_used)
        return InvoiceState.VOIDED if whole and credited != UNCORRECTED else InvoiceState.ISSUED

    @property
    def total_cents(self) -> int:
        return self.subtotal_cents + self.tax_cents

    @property
    def due_cents(self) -> int:
        """What it left to pay when it was issued."""
        return self.total_cents - self.paid_cents

    @property
    def on_account_cents(self) -> int:
        """What of the subtotal the balance did not cover."""
        return self.subtotal_cents - self.paid_cents

    @property
    def due_at(self) -> datetime | None:
        """When it has to be paid; None for a draft, and where nothing was left to pay."""
        if self.issued_at is None or not self.due_cents:
            return None
        return self.issued_at + timedelta(days=self.payment_days)

    def left_cents(self, credited: Credited) -> int:
        """What is left to pay of it after its credit notes."""
        return self.due_cents - credited.tax_cents - min(credited.net_cents, self.on_account_cents)

    def issued(self, invoice_id: UUID, number: str, *, at: datetime, by: str) -> "Invoice":
        return replace(self, id=invoice_id, number=number, issued_at=at, issued_by=by)


def tax(cents: int, rate: int) -> int:
    """The tax on an amount in cents, half a cent rounded up. Raises ValueError for a negative amount."""
    if cents < 0:
        raise ValueError("no tax is owed on a negative amount")
    return (cents * rate + BASIS_POINTS // 2) // BASIS_POINTS


def credits_used(usage: Nano, unused: Nano) -> Nano:
    """What of the usage was used of credits, when `unused` of them were on no invoice yet.

    Negative for what is taken back: earlier invoices used more of credits than is left of these after corrections.
    """
    return Nano(min(usage, unused))


def draft(
    organization_id: OrganizationId,
    period: Period,
    *,
    seller: Seller,
    buyer: BillingDetails,
    usage: Sequence[Usage],
    unused_credits: Nano,
    given: Sequence[GivenCredit] = (),
    balance_at_end: Nano = NOTHING,
    balance_now: Nano = NOTHING,
    unspent_credits: Nano = NOTHING,
    payment_days: int = 0,
) -> tuple[Invoice, tuple[InvoiceLine, ...]]:
    """The invoice of what was used, and its lines. Raises ValueError when there is nothing to invoice.

    `unused_credits` may be used, of those `given` in their order; corrections may have taken a part of these back.
    Below zero, they are what earlier invoices used and corrections have taken away since: it is invoiced, with the
    reasons of the latest corrections. The balances are those at the end of the month and now. What they are below zero
    is left to pay. `unspent_credits` are the credits of all months that no usage has used yet, but for that of this
    invoice: what it leaves of them is in the balance of now for a later invoice, and pays nothing of this one.
    """
    if not usage and unused_credits >= NOTHING:
        raise ValueError("there is nothing to invoice")
    used = Nano(sum(line.amount_nano for line in usage))
    credits_nano = credits_used(used, unused_credits)
    lines = _lines(usage, _used_of(given, credits_nano))
    subtotal = sum(line.cents for line in lines)
    adjustment = Nano(subtotal * NANO_PER_CENT - (used - credits_nano))
    owed = on_account(
        Nano(subtotal * NANO_PER_CENT),
        at_end=Nano(balance_at_end - adjustment),
        now=Nano(balance_now - adjustment - max(NOTHING, unspent_credits - credits_nano)),
    )
    invoice = Invoice(
        organization_id=organization_id,
        issuer=period.issuer,
        period=period.month,
        seller=seller.name,
        seller_address=seller.address,
        seller_tax_id=seller.tax_id,
        legal_name=buyer.legal_name,
        address=buyer.address,
        country=buyer.country,
        tax_id=buyer.tax_id,
        tax_rate=buyer.tax_rate,
        reverse_charge=buyer.reverse_charge,
        usage_nano=used,
        credits_nano=credits_nano,
        adjustment_nano=adjustment,
        subtotal_cents=subtotal,
        tax_cents=tax(subtotal, buyer.tax_rate),
        paid_cents=subtotal - owed // NANO_PER_CENT,
        payment_days=payment_days,
    )
    return invoice, lines


def _used_of(given: Sequence[GivenCredit], amount: Nano) -> list[tuple[GivenCredit | None, Nano]]:
    """How much of each credit is used, in their order. What is left of the amount is of none that is known.

    A negative amount is taken back by corrections, the latest first.
    """
    if amount < NOTHING:
        corrections = [replace(each, left_nano=Nano(-each.left_nano)) for each in reversed(given)]
        return [(credit, Nano(-taken)) for credit, taken in _used_of(corrections, Nano(-amount))]
    used: list[tuple[GivenCredit | None, Nano]] = []
    for credit in given:
        taken = Nano(min(credit.left_nano, amount))
        if taken > NOTHING:
            used.append((credit, taken))
            amount = Nano(amount - taken)
    return [*used, (None, amount)] if amount else used


def _lines(
    usage: Sequence[Usage], given: Sequence[tuple[GivenCredit | None, Nano]]
) -> tuple[InvoiceLine, ...]:
    amounts = [line.amount_nano for line in usage] + [Nano(-used) for _, used in given]
    cents = in_whole_cents(amounts)
    adjustment = Nano(sum(cents) * NANO_PER_CENT - sum(amounts))
    lines = [
        InvoiceLine(
            number=number,
            kind=LineKind.USAGE,
            project_id=line.project_id,
            project=line.project,
            sku=line.sku,
            purchase=line.purchase,
            sla=line.sla,
            stopped=line.stopped,
            unused=line.unused,
            unit=line.unit,
            nano_per_unit_hour=line.nano_per_unit_hour,
            used_in=line.used_in,
            unit_seconds=line.unit_seconds,
            amount_nano=line.amount_nano,
            cents=printed,
        )
        for number, (line, printed) in enumerate(zip(usage, cents, strict=False), start=1)
    ]
    for (credit, used), printed in zip(given, cents[len(usage) :], strict=True):
        line = InvoiceLine(
            number=len(lines) + 1, kind=LineKind.CREDIT, amount_nano=Nano(-used), cents=printed
        )
        lines.append(
            line
            if credit is None
            else replace(
                line,
                project_id=credit.project_id,
                project=credit.project,
                used_in=credit.used_in,
                credit_id=credit.id,
                lease_id=credit.lease_id,
                reason=credit.reason,
            )
        )
    if adjustment:
        lines.append(
            InvoiceLine(number=len(lines) + 1, kind=LineKind.ADJUSTMENT, amount_nano=adjustment, cents=0)
        )
    return tuple(lines)


def draft_refusal(period: Period, now: datetime) -> Refused | None:
    """Why a month has no draft of an invoice: it has not begun."""
    if period.month > now:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{period.name} has not begun.")
    return None


def issue_refusal(period: Period) -> Refused | None:
    """Why no invoice of a month is issued: charges may still be booked in it."""
    if period.state is not PeriodState.CLOSED:
        why = f"{period.name} is {period.state}; its invoices are issued when it is closed."
        return Refused(RefusalCode.PERIOD_NOT_CLOSED, why)
    return None
