"""Suppliers' invoices and their match on the wire."""

from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.match import Difference, MatchedMachine
from control_plane.domain.period import month_text
from control_plane.services.supplier_invoices import MatchReport, SupplierInvoice
from control_plane.services.supplier_uploads import Uploading
from control_plane.wire.supplier_invoices import (
    MatchDifferenceView,
    MatchedMachineView,
    MatchView,
    SupplierInvoiceView,
    SupplierUploadView,
)


def supplier_invoice_view(invoice: SupplierInvoice) -> SupplierInvoiceView:
    return SupplierInvoiceView(
        id=on_wire(Prefix.SUPPLIER_INVOICE, invoice.id),
        provider=invoice.provider,
        period=month_text(invoice.month),
        lines=invoice.line_count,
        amount=money(invoice.amount_nano),
        sha256=invoice.sha256,
        imported_at=invoice.imported_at,
        imported_by=invoice.imported_by,
        state="imported" if invoice.state is None else invoice.state.value,
        decided_at=invoice.decided_at,
        decided_by=invoice.decided_by,
        reason=invoice.reason,
    )


def supplier_upload_view(uploading: Uploading) -> SupplierUploadView:
    return SupplierUploadView(
        id=on_wire(Prefix.SUPPLIER_UPLOAD, uploading.upload.id),
        provider=uploading.upload.provider,
        period=month_text(uploading.upload.month),
        parts=len(uploading.parts),
        lines=uploading.lines,
        size=uploading.size,
    )


def match_view(report: MatchReport) -> MatchView:
    return MatchView(
        month=month_text(report.month),
        until=report.until,
        matched=report.is_matched,
        providers=report.providers,
        missing_invoices=report.missing,
        billed=money(report.billed_nano),
        used=money(report.used_nano),
        expected=money(report.expected_nano),
        invoiced=money(report.theirs_nano),
        differences=tuple(
            _difference_view(Difference(word, amount)) for word, amount in report.words.items() if amount
        ),
        machines_count=report.machines_count,
        open_count=report.open_count,
        machines=tuple(map(_machine_view, report.machines)),
    )


def _machine_view(machine: MatchedMachine) -> MatchedMachineView:
    ours = machine.child.machine_id if machine.child else machine.record and machine.record.id
    return MatchedMachineView(
        reference=machine.reference,
        machine_id=on_wire(Prefix.MACHINE, ours) if ours else None,
        billed=money(machine.billed_nano),
        used=money(machine.used_nano),
        expected=money(machine.expected_nano),
        invoiced=money(machine.theirs_nano),
        open=machine.is_open,
        differences=tuple(map(_difference_view, machine.differences)),
        child_kind=machine.child.kind if machine.child else None,
    )


def _difference_view(difference: Difference) -> MatchDifferenceView:
    return MatchDifferenceView(difference.word.value, money(difference.amount_nano))
