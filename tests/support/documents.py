"""Invoices and credit notes as an export reads them, for tests."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from uuid import UUID

from control_plane.domain.credit_note import LineToCredit, correction
from control_plane.domain.focus_documents import DocumentFacts, DocumentLine
from control_plane.domain.ids import LeaseId, OrganizationId, ProjectId
from control_plane.domain.invoice import (
    UNCORRECTED,
    BillingDetails,
    GivenCredit,
    Invoice,
    InvoiceLine,
    LineKind,
    Seller,
    Usage,
    draft,
)
from control_plane.domain.money import NANO_PER_CENT, Nano
from control_plane.domain.period import MAIN_ISSUER, Period, PeriodState
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import Refused
from control_plane.domain.sku import CapacityShape, Unit
from control_plane.domain.sla import SlaTier

SEPTEMBER, OCTOBER, NOVEMBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (9, 10, 11))
ACME, PROJECT = OrganizationId(UUID(int=1)), ProjectId(UUID(int=2))
USED = Usage(
    project_id=PROJECT,
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
BROKEN = GivenCredit(
    id=UUID(int=5),
    left_nano=Nano(1_000_000_001),
    reason="train-1 was available for 97.1 % of September",
    project_id=PROJECT,
    project="research",
    lease_id=LeaseId(UUID(int=13)),
    used_in=SEPTEMBER,
)
GOODWILL = GivenCredit(id=UUID(int=6), left_nano=Nano(500_000_000), reason="ticket 4711")


def an_invoice(
    amounts: list[Nano],
    given: tuple[GivenCredit, ...] = (),
    *,
    rate: int = 1_900,
    unused: int | None = None,
) -> tuple[Invoice, tuple[InvoiceLine, ...]]:
    left = sum(credit.left_nano for credit in given)
    made, lines = draft(
        ACME,
        Period(MAIN_ISSUER, OCTOBER, PeriodState.CLOSED),
        seller=Seller("Neocloud Ltd", (), None),
        buyer=BillingDetails(
            legal_name="Acme GmbH",
            address=("Hafen 1",),
            country="DE",
            tax_id=None,
            tax_rate=rate,
            reverse_charge=False,
        ),
        usage=[replace(USED, amount_nano=amount) for amount in amounts],
        unused_credits=Nano(left if unused is None else unused),
        given=given,
    )
    return made.issued(UUID(int=7), "INV-2026-000001", at=NOVEMBER, by="user_1"), lines


def of_invoice(
    invoice: Invoice, lines: tuple[InvoiceLine, ...], *, list_nano: int | None = None
) -> DocumentFacts:
    assert invoice.id is not None
    assert invoice.number is not None
    return DocumentFacts(
        id=invoice.id,
        number=invoice.number,
        organization_id=ACME,
        organization="Acme",
        period=invoice.period,
        corrects=None,
        corrected_period=None,
        tax_rate=invoice.tax_rate,
        tax_cents=invoice.tax_cents,
        total_cents=invoice.total_cents,
        usage_nano=invoice.usage_nano,
        list_nano=Nano(invoice.usage_nano if list_nano is None else list_nano),
        credits_nano=Nano(0),
        reason=None,
        lines=tuple(_line(line) for line in lines if line.kind is not LineKind.USAGE),
    )


def _line(line: InvoiceLine, *, number: int | None = None, amount: int | None = None) -> DocumentLine:
    shared = {field.name for field in fields(DocumentLine)} & {field.name for field in fields(InvoiceLine)}
    values = {name: getattr(line, name) for name in shared}
    values |= {"number": line.number if number is None else number}
    values |= {"amount_nano": line.amount_nano if amount is None else Nano(amount)}
    lease = None if line.lease_id is None else "train-1"
    capacity = None if line.lease_id is None and line.sku is None else CapacityShape.VM
    return DocumentLine(
        **values,
        lease=lease,
        gpu_count=8,
        capacity=capacity,
        invoice_line=None if amount is None else line.number,
    )


def of_credit_note(
    invoice: Invoice, lines: tuple[InvoiceLine, ...], asked: list[LineToCredit] | None
) -> tuple[DocumentFacts, int]:
    """A credit note in November, and the total that it is printed with, in cents."""
    found = correction(invoice, lines, before=UNCORRECTED, credited_lines={}, asked=asked)
    assert not isinstance(found, Refused)
    by_number = {line.number: line for line in lines}
    facts = DocumentFacts(
        id=UUID(int=8),
        number="CN-2026-000001",
        organization_id=ACME,
        organization="Acme",
        period=NOVEMBER,
        corrects=invoice.number,
        corrected_period=invoice.period,
        tax_rate=invoice.tax_rate,
        tax_cents=-found.tax_cents,
        total_cents=-found.net_cents - found.tax_cents,
        usage_nano=Nano(0),
        list_nano=Nano(0),
        credits_nano=found.credits_nano,
        reason="ticket 4712",
        lines=tuple(
            _line(by_number[line.invoice_line], number=line.number, amount=-line.cents * NANO_PER_CENT)
            for line in found.lines
        ),
    )
    return facts, found.net_cents + found.tax_cents
