"""The rows of FOCUS 1.2 that an invoice and a credit note have beside the charges.

The rows of a document, with its number as their InvoiceId, sum to the total that it is printed with, exactly. Those of
an invoice are its charges, and from here:

- Credit, for each credit that it used: what a broken promise gave back, or finance. It names the lease if there is one.
  What is taken back of a credit that an earlier invoice used, because it was corrected, is positive, and a Correction.
- Adjustment: the fraction of a cent by which the subtotal is rounded down.
- Tax.

A credit note is in the month in which it is booked, and corrects an earlier one: ChargeClass is Correction, and the
charge period is the month of the invoice. Its rows are Usage for each line that it corrects, or Credit where that line
took a credit back, Credit for what it gives back as credit, Adjustment for the fraction of a cent of that, and Tax.

Money that a customer pays in or gets paid back is no charge, and has no row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.domain.focus import (
    CURRENCY,
    LEASE_SERVICES,
    NAMES,
    PRICING_CATEGORIES,
    Row,
    Value,
    sku_price_id,
    usd,
)
from control_plane.domain.ids import LeaseId, OrganizationId, Prefix, ProjectId, on_wire
from control_plane.domain.invoice import BASIS_POINTS, LineKind
from control_plane.domain.money import NANO_PER_CENT, Nano
from control_plane.domain.period import month_after
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import CapacityShape, Unit, unit_of
from control_plane.domain.sla import SlaTier


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLine:
    """A line of an invoice that is no usage, or a line that a credit note corrects."""

    number: int
    kind: LineKind
    amount_nano: Nano
    """What it adds to what is billed: negative for a credit and for what is corrected."""
    project_id: ProjectId | None
    project: str | None
    sku: str | None
    purchase: PurchaseKind | None
    sla: SlaTier | None
    stopped: bool | None
    unit: Unit | None
    used_in: datetime | None
    """The first instant of the month that it is about; None for that of the document."""
    lease_id: LeaseId | None
    lease: str | None
    gpu_count: int | None
    """Of the SKU, or of that of the lease."""
    capacity: CapacityShape | None
    """Of the same."""
    reason: str | None
    invoice_line: int | None
    """The number of the line that a credit note corrects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFacts:
    """An invoice or a credit note with everything that its rows say."""

    id: UUID
    number: str
    organization_id: OrganizationId
    organization: str
    period: datetime
    """The first instant of the month in which it is booked."""
    corrects: str | None
    """The number of the invoice that a credit note corrects; None for an invoice."""
    corrected_period: datetime | None
    """The first instant of the month of that invoice."""
    tax_rate: int
    """In basis points."""
    tax_cents: int
    """Negative for a credit note, as its total."""
    total_cents: int
    usage_nano: Nano
    """The charges of an invoice, which have rows of their own; 0 for a credit note."""
    list_nano: Nano
    """What these come to at list prices."""
    credits_nano: Nano
    """What a credit note gives back as credit; 0 for an invoice."""
    reason: str | None
    """Why there is a credit note."""
    lines: tuple[DocumentLine, ...]


class DocumentDiffersError(Exception):
    """The rows of a document do not sum to its printed total."""


def document_rows(facts: DocumentFacts, *, seller: str) -> list[Row]:
    """The rows of a document, in the order of ChargePeriodStart and x_ChargeId.

    Raises DocumentDiffersError unless they and its charges sum to its printed total, to the nano-dollar.
    """
    rows = [_line(facts, line) for line in facts.lines]
    rows += _credit_given_back(facts) if facts.credits_nano else []
    missing = facts.total_cents * NANO_PER_CENT - facts.usage_nano - facts.tax_cents * NANO_PER_CENT
    missing -= sum(row.amount_nano for row in rows)
    if missing and (facts.corrects is None or abs(missing) >= NANO_PER_CENT):
        raise DocumentDiffersError(f"the rows of {facts.number} lack {missing} nano-USD of what is printed")
    if missing:
        what = f"Rounding of the credit of {facts.number} to whole cents"
        rows.append(_Billed(facts, "rounding", "Adjustment", Nano(missing), what))
    rows += _tax(facts) if facts.tax_cents else []
    made = [row.values(seller) for row in rows]
    return sorted((tuple(map(row.get, NAMES)) for row in made), key=key)


_START, _ID = NAMES.index("ChargePeriodStart"), NAMES.index("x_ChargeId")


def key(row: Row) -> tuple[datetime, str]:
    """By which the rows of an organization are in order: ChargePeriodStart and x_ChargeId."""
    start, charge = row[_START], row[_ID]
    if not isinstance(start, datetime) or not isinstance(charge, str):
        raise TypeError("a row has a start and an id")
    return start, charge


@dataclass(frozen=True, slots=True)
class _Billed:
    """What a row of a document says."""

    document: DocumentFacts
    part: str
    """Its place in the document, which is a part of its id."""
    category: str
    amount_nano: Nano
    description: str
    line: DocumentLine | None = None
    list_nano: Nano | None = None
    """The amount at list prices, where that is another one."""
    corrects: bool = False
    """Whether it corrects what is on an earlier document, whatever month it is about."""

    def values(self, seller: str) -> dict[str, Value]:
        document, line = self.document, self.line
        own = None if line is None else line.used_in
        about = own or document.corrected_period or document.period
        corrects = about < document.period or document.corrects is not None or self.corrects
        cost = usd(self.amount_nano)
        prefix = Prefix.INVOICE if document.corrects is None else Prefix.CREDIT_NOTE
        values: dict[str, Value] = {
            "BilledCost": cost,
            "BillingAccountId": on_wire(Prefix.ORGANIZATION, document.organization_id),
            "BillingAccountName": document.organization,
            "BillingAccountType": "Organization",
            "BillingCurrency": CURRENCY,
            "BillingPeriodEnd": month_after(document.period),
            "BillingPeriodStart": document.period,
            "ChargeCategory": self.category,
            "ChargeClass": "Correction" if corrects else None,
            "ChargeDescription": self.description,
            "ChargeFrequency": "One-Time",
            "ChargePeriodEnd": month_after(about),
            "ChargePeriodStart": about,
            "ContractedCost": cost,
            "EffectiveCost": cost,
            "InvoiceId": document.number,
            "InvoiceIssuerName": seller,
            "ListCost": cost if self.list_nano is None else usd(self.list_nano),
            "PricingCurrency": CURRENCY,
            "PricingCurrencyEffectiveCost": cost,
            "ProviderName": seller,
            "PublisherName": seller,
            "ServiceCategory": "Other",
            "ServiceName": "Invoicing",
            "ServiceSubcategory": "Other (Other)",
            "x_ChargeId": f"{on_wire(prefix, document.id)}/{self.part}",
            "x_CorrectsInvoiceId": document.corrects,
        }
        return values if line is None else values | _of_line(line)


def _of_line(line: DocumentLine) -> dict[str, Value]:
    """What a line says of the project, the lease or the SKU that it is about."""
    values: dict[str, Value] = {}
    if line.capacity is not None:
        values |= LEASE_SERVICES[line.capacity]
    if line.project_id is not None:
        values |= {
            "SubAccountId": on_wire(Prefix.PROJECT, line.project_id),
            "SubAccountName": line.project,
            "SubAccountType": "Project",
        }
    if line.invoice_line is not None:
        values["x_CorrectsInvoiceLine"] = str(line.invoice_line)
    if line.lease_id is not None:
        unit = unit_of(line.gpu_count or 0)
        values |= {
            "ResourceId": on_wire(Prefix.LEASE, line.lease_id),
            "ResourceName": line.lease or None,
            "ResourceType": f"{_word(unit)} Lease",
        }
    if line.sku is not None and line.purchase is not None and line.sla is not None:
        stopped = bool(line.stopped)
        values |= {
            # A line is of a SKU, and names no commitment: that of a lease is in the rows of its charges.
            "PricingCategory": "Other"
            if line.purchase is PurchaseKind.COMMITTED
            else PRICING_CATEGORIES.get(line.purchase, "Standard"),
            "SkuId": line.sku,
            "SkuMeter": f"{'Stopped ' if stopped else ''}{_word(line.unit)} Time",
            "SkuPriceId": sku_price_id(line.sku, line.purchase, line.sla, stopped=stopped),
        }
    return values


def _word(unit: Unit | None) -> str:
    return "GPU" if unit is Unit.GPU else "Machine"


def _line(facts: DocumentFacts, line: DocumentLine) -> _Billed:
    part, amount = str(line.number), line.amount_nano
    if line.kind is LineKind.ADJUSTMENT:
        what = f"Rounding of {facts.number} down to whole cents"
        return _Billed(facts, part, "Adjustment", amount, what, line)
    if facts.corrects is not None:
        category = "Credit" if line.kind is LineKind.CREDIT else "Usage"
        what = f"{facts.number} corrects line {line.invoice_line} of {facts.corrects}: {facts.reason}"
        return _Billed(facts, part, category, amount, what, line)
    why = "" if line.reason is None else f": {line.reason}"
    if amount > 0:
        what = f"Credit of an earlier invoice taken back by {facts.number}{why}"
        return _Billed(facts, part, "Credit", amount, what, line, corrects=True)
    return _Billed(facts, part, "Credit", amount, f"Credit used by {facts.number}{why}", line)


def _credit_given_back(facts: DocumentFacts) -> Sequence[_Billed]:
    """The used part of a credit that a credit note gives back: it is billed again, and may be used again."""
    what = f"{facts.number} gives back credit that {facts.corrects} used: {facts.reason}"
    return [_Billed(facts, "credit", "Credit", facts.credits_nano, what)]


def _tax(facts: DocumentFacts) -> Sequence[_Billed]:
    """The tax. At list prices, it is also the tax on what these are more than the prices of the charges."""
    whole, rest = divmod(facts.tax_rate, 100)
    rate = f"{whole}.{rest:02d}" if rest else str(whole)
    tax = facts.tax_cents * NANO_PER_CENT
    more = (facts.list_nano - facts.usage_nano) * facts.tax_rate // BASIS_POINTS
    what = f"Tax of {rate} % on {facts.number}"
    return [_Billed(facts, "tax", "Tax", Nano(tax), what, None, Nano(tax + more))]
