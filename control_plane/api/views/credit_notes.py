"""Credit notes on the wire."""

from control_plane.api.views.money import in_cents, money
from control_plane.domain.credit_note import CreditNote, CreditNoteLine
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.invoice import Invoice
from control_plane.services.credit_notes import FullCreditNote
from control_plane.wire.credit_notes import CreditNoteLineView, CreditNoteSummaryView, CreditNoteView


def credit_note_summary(note: CreditNote, invoice: Invoice) -> CreditNoteSummaryView:
    return CreditNoteSummaryView(
        id=on_wire(Prefix.CREDIT_NOTE, note.id),
        number=note.number,
        invoice_id=on_wire(Prefix.INVOICE, note.invoice_id),
        invoice_number=invoice.number or "",
        organization_id=on_wire(Prefix.ORGANIZATION, note.organization_id),
        legal_name=invoice.legal_name,
        net=in_cents(note.net_cents),
        tax=in_cents(note.tax_cents),
        total=in_cents(note.total_cents),
        to_balance=money(note.to_wallet_nano),
        less_due=money(note.less_owed_nano),
        reason=note.reason,
        issued_at=note.issued_at,
        issued_by=note.issued_by,
    )


def credit_note_view(full: FullCreditNote) -> CreditNoteView:
    summary = credit_note_summary(full.note, full.invoice)
    return CreditNoteView(
        **{name: getattr(summary, name) for name in CreditNoteSummaryView.__struct_fields__},
        credited=in_cents(full.note.credited_cents),
        credits=money(full.note.credits_nano),
        lines=tuple(map(_line_view, full.lines)),
    )


def _line_view(line: CreditNoteLine) -> CreditNoteLineView:
    return CreditNoteLineView(line.number, line.invoice_line, in_cents(line.cents))
