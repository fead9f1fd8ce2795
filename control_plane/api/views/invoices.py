"""Invoices and billing details on the wire."""

from control_plane.api import paging
from control_plane.api.views.credit_notes import credit_note_summary
from control_plane.api.views.money import in_cents, money
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.invoice import Credited, Invoice, InvoiceLine
from control_plane.domain.period import month_text
from control_plane.services.billing_details import StoredDetails
from control_plane.services.invoices import FullInvoice, NotInvoiced
from control_plane.wire.invoices import (
    BillingDetailsView,
    InvoiceLineView,
    InvoiceSummaryView,
    InvoiceView,
    NotInvoicedView,
)


def after_invoice(kind: str, invoice: Invoice) -> str:
    """The cursor of a list of issued invoices after this one."""
    if invoice.issued_at is None or invoice.id is None:
        raise ValueError("drafts are not listed")
    return paging.after_moment(kind, invoice.issued_at, invoice.id)


def summary_view(invoice: Invoice, credited: Credited) -> InvoiceSummaryView:
    return InvoiceSummaryView(
        id=None if invoice.id is None else on_wire(Prefix.INVOICE, invoice.id),
        number=invoice.number,
        state=invoice.state(credited).value,
        organization_id=on_wire(Prefix.ORGANIZATION, invoice.organization_id),
        legal_name=invoice.legal_name,
        period=month_text(invoice.period),
        subtotal=in_cents(invoice.subtotal_cents),
        tax=in_cents(invoice.tax_cents),
        total=in_cents(invoice.total_cents),
        paid=in_cents(invoice.paid_cents),
        due=in_cents(invoice.left_cents(credited)),
        issued_at=invoice.issued_at,
        credited=in_cents(credited.net_cents + credited.tax_cents),
        due_at=invoice.due_at,
    )


def invoice_view(full: FullInvoice) -> InvoiceView:
    invoice, summary = full.invoice, summary_view(full.invoice, full.credited)
    return InvoiceView(
        **{name: getattr(summary, name) for name in InvoiceSummaryView.__struct_fields__},
        issuer=invoice.issuer,
        seller=invoice.seller,
        seller_address=invoice.seller_address,
        seller_tax_id=invoice.seller_tax_id,
        address_lines=invoice.address,
        country=invoice.country,
        tax_id=invoice.tax_id,
        tax_rate=invoice.tax_rate,
        reverse_charge=invoice.reverse_charge,
        usage=money(invoice.usage_nano),
        credits=money(invoice.credits_nano),
        adjustment=money(invoice.adjustment_nano),
        issued_by=invoice.issued_by,
        lines=tuple(_line_view(line, full.credited_lines.get(line.number, 0)) for line in full.lines),
        credit_notes=tuple(credit_note_summary(note, invoice) for note in full.credit_notes),
    )


def _line_view(line: InvoiceLine, credited_cents: int) -> InvoiceLineView:
    return InvoiceLineView(
        number=line.number,
        kind=line.kind.value,
        project_id=None if line.project_id is None else on_wire(Prefix.PROJECT, line.project_id),
        project=line.project,
        sku=line.sku,
        purchase=None if line.purchase is None else line.purchase.value,
        sla=None if line.sla is None else line.sla.value,
        stopped=line.stopped,
        unused=line.unused,
        unit=None if line.unit is None else line.unit.value,
        price=None if line.nano_per_unit_hour is None else money(line.nano_per_unit_hour),
        unit_seconds=line.unit_seconds,
        used_in=None if line.used_in is None else month_text(line.used_in),
        lease_id=None if line.lease_id is None else on_wire(Prefix.LEASE, line.lease_id),
        reason=line.reason,
        amount=in_cents(line.cents),
        exact=money(line.amount_nano),
        credited=in_cents(credited_cents),
    )


def not_invoiced_view(found: NotInvoiced) -> NotInvoicedView:
    return NotInvoicedView(
        on_wire(Prefix.ORGANIZATION, found.organization_id), found.refused.code, found.refused.why
    )


def billing_details_view(organization_id: OrganizationId, stored: StoredDetails) -> BillingDetailsView:
    details = stored.details
    return BillingDetailsView(
        organization_id=on_wire(Prefix.ORGANIZATION, organization_id),
        legal_name=details.legal_name,
        address_lines=details.address,
        country=details.country,
        tax_id=details.tax_id,
        tax_rate=details.tax_rate,
        reverse_charge=details.reverse_charge,
        changed_at=stored.changed_at,
        changed_by=stored.changed_by,
    )
