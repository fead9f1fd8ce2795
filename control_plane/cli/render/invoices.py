"""Invoices and billing details on the screen."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import Cell, facts, heading, table
from control_plane.cli.words import absolute, cents, price, rounded, spaced, unit_hours
from control_plane.wire.credit_notes import CreditNoteSummaryView, CreditNoteView
from control_plane.wire.invoices import (
    BillingDetailsView,
    InvoiceLineView,
    InvoiceSummaryView,
    InvoiceView,
    NotInvoicedView,
)


def invoice_table(invoices: Sequence[InvoiceSummaryView]) -> RenderableType:
    if not invoices:
        return Text("There are no invoices.")
    rows: list[Sequence[Cell]] = [
        (
            Text(invoice.number or invoice.state, style="bold"),
            invoice.period,
            "" if invoice.issued_at is None else f"{invoice.issued_at:%Y-%m-%d}",
            invoice.legal_name,
            rounded(invoice.total),
            "voided" if invoice.state == "voided" else rounded(invoice.due),
        )
        for invoice in invoices
    ]
    columns = ("NUMBER", "PERIOD", "ISSUED", "BUYER", "TOTAL USD", "DUE USD")
    return table(columns, rows, right=("TOTAL USD", "DUE USD"), whole=("NUMBER", "PERIOD", "ISSUED"))


def invoice_page(invoice: InvoiceView) -> RenderableType:
    return Group(
        heading(invoice.number or "Draft of an invoice", invoice.period),
        facts(
            ("Invoice", invoice.id),
            ("State", invoice.state if invoice.state == "voided" else None),
            ("Issued", None if invoice.issued_at is None else absolute(invoice.issued_at)),
            ("Seller", _party(invoice.seller, invoice.seller_address, None, invoice.seller_tax_id)),
            ("Buyer", _party(invoice.legal_name, invoice.address_lines, invoice.country, invoice.tax_id)),
        ),
        Text(),
        table(
            ("", "USED BY", "WHAT", "HOURS", "USD/HOUR", "USD"),
            [_line(line, invoice.period) for line in invoice.lines],
            right=("HOURS", "USD/HOUR", "USD"),
        ),
        Text(),
        facts(
            ("Subtotal", f"{rounded(invoice.subtotal)} USD"),
            (
                "Tax",
                f"{rounded(invoice.tax)} USD  ({_tax(invoice.tax_rate, reverse_charge=invoice.reverse_charge)})",
            ),
            ("Total", f"{rounded(invoice.total)} USD"),
            ("Paid from balance", f"{rounded(invoice.paid)} USD"),
            ("Tax credited", _tax_credited(invoice)),
            ("Due", f"{rounded(invoice.due)} USD{_by(invoice)}"),
        ),
        *([Text(), credit_note_table(invoice.credit_notes)] if invoice.credit_notes else []),
    )


def _by(invoice: InvoiceSummaryView) -> str:
    return "" if invoice.due_at is None else f", by {invoice.due_at:%Y-%m-%d}"


def _tax_credited(invoice: InvoiceView) -> str | None:
    if not invoice.credit_notes:
        return None
    return f"{cents(sum(note.tax.nano for note in invoice.credit_notes))} USD"


def credit_note_table(notes: Sequence[CreditNoteSummaryView]) -> RenderableType:
    if not notes:
        return Text("There are no credit notes.")
    rows: list[Sequence[Cell]] = [
        (
            Text(note.number, style="bold"),
            note.invoice_number,
            f"{note.issued_at:%Y-%m-%d}",
            note.reason,
            rounded(note.net),
            rounded(note.tax),
        )
        for note in notes
    ]
    columns = ("CREDIT NOTE", "INVOICE", "ISSUED", "REASON", "NET USD", "TAX USD")
    return table(columns, rows, right=("NET USD", "TAX USD"), whole=("CREDIT NOTE", "INVOICE", "ISSUED"))


def credit_note_page(note: CreditNoteView) -> RenderableType:
    return Group(
        heading(note.number, f"corrects {note.invoice_number}"),
        facts(
            ("Credit note", note.id),
            ("Invoice", note.invoice_id),
            ("Buyer", note.legal_name),
            ("Issued", f"{absolute(note.issued_at)} by {note.issued_by}"),
            ("Reason", note.reason),
        ),
        Text(),
        table(
            ("", "INVOICE LINE", "USD"),
            [(str(line.number), str(line.invoice_line), rounded(line.amount)) for line in note.lines],
            right=("INVOICE LINE", "USD"),
        ),
        Text(),
        facts(
            ("Sum of the lines", f"{rounded(note.credited)} USD"),
            ("Net", f"{rounded(note.net)} USD"),
            ("Tax", f"{rounded(note.tax)} USD"),
            ("To the balance", f"{price(note.to_balance)} USD"),
            ("Less due", f"{price(note.less_due)} USD" if note.less_due.nano else None),
            ("Of it credits", f"{price(note.credits)} USD" if note.credits.nano else None),
        ),
    )


def _line(line: InvoiceLineView, period: str) -> Sequence[Cell]:
    if line.kind != "usage":
        shown = price(line.exact) if line.kind == "adjustment" else rounded(line.amount)
        taken_back = line.kind == "credit" and line.exact.nano > 0
        kind = "credit taken back" if taken_back else spaced(line.kind)
        what = kind if line.reason is None else f"{kind}: {line.reason}"
        return (str(line.number), line.project or "", what, "", "", shown)
    notes = [line.sku or "", spaced(line.purchase or "")]
    notes += [line.sla] if line.sla not in (None, "bronze") else []
    notes += ["stopped"] if line.stopped else []
    notes += ["rest of the term, not used"] if line.unused else []
    notes += [f"corrects {line.used_in}"] if line.used_in != period else []
    return (
        str(line.number),
        line.project or "",
        ", ".join(notes),
        unit_hours(line.unit_seconds or 0),
        price(line.price),
        rounded(line.amount),
    )


def _party(name: str, address: Sequence[str], country: str | None, tax_id: str | None) -> str:
    parts = [name, *address, *filter(None, [country])]
    return ", ".join(parts) + (f"; tax id {tax_id}" if tax_id else "")


def _tax(rate: int, *, reverse_charge: bool) -> str:
    if reverse_charge:
        return "reverse charge: the buyer owes it"
    whole, rest = divmod(rate, 100)
    return f"{whole}{f'.{rest:02d}'.rstrip('0') if rest else ''} %"


def refused_table(refused: Sequence[NotInvoicedView]) -> RenderableType:
    rows = [(found.organization_id, found.detail) for found in refused]
    return Group(Text(), table(("NOT INVOICED", "WHY"), rows))


def details_page(details: BillingDetailsView, organization: str) -> RenderableType:
    return Group(
        heading(details.legal_name, organization),
        facts(
            ("Address", ", ".join([*details.address_lines, details.country])),
            ("Tax id", details.tax_id),
            ("Tax", _tax(details.tax_rate, reverse_charge=details.reverse_charge)),
            ("Set", f"{absolute(details.changed_at)} by {details.changed_by}"),
        ),
    )
