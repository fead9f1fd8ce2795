"""An invoice, or its draft, as a page of HTML.

What an invoice has to say: Directive 2006/112/EC, article 226
(https://eur-lex.europa.eu/eli/dir/2006/112/oj, 2026-11-24).
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, timedelta

from control_plane.api.views.printed_page import (
    cents,
    exact,
    facts,
    isolated,
    page,
    parties,
    tax_rate,
    text,
    totals,
)
from control_plane.domain.credit_note import CreditNote, credited_by
from control_plane.domain.invoice import Invoice, InvoiceLine, InvoiceState, LineKind
from control_plane.domain.period import month_after, month_text
from control_plane.domain.sku import Unit
from control_plane.domain.sla import SlaTier
from control_plane.services.invoices import FullInvoice

_UNITS = {Unit.GPU: "GPU-hours", Unit.MACHINE: "machine-hours"}


def invoice_page(full: FullInvoice) -> bytes:
    """The page of an invoice or of its draft, in UTF-8. The same invoice gives the same bytes."""
    invoice = full.invoice
    title = "Draft of an invoice" if invoice.number is None else f"Invoice {invoice.number}"
    return page(
        title,
        [
            *_state(full),
            parties(invoice),
            _facts(invoice),
            _lines(invoice, full.lines),
            _totals(invoice, full.credit_notes),
            *_remarks(full),
        ],
    )


def _state(full: FullInvoice) -> Iterable[str]:
    state = full.invoice.state(full.credited)
    if state is InvoiceState.DRAFT:
        yield '<p class="state">This is a draft. It is no invoice, and nothing in it is final.</p>'
    if state is InvoiceState.VOIDED:
        yield '<p class="state">This invoice is void: credit notes cover all of it.</p>'


def _facts(invoice: Invoice) -> str:
    last = month_after(invoice.period) - timedelta(days=1)
    issued = None if invoice.issued_at is None else f"{invoice.issued_at.astimezone(UTC):%Y-%m-%d}"
    return facts(
        [
            ("Invoice number", invoice.number),
            ("Date of issue", issued),
            ("Period", f"{invoice.period:%Y-%m-%d} to {last:%Y-%m-%d} (UTC)"),
            ("Currency", "US dollars (USD)"),
        ]
    )


def _lines(invoice: Invoice, lines: Sequence[InvoiceLine]) -> str:
    rows = "\n".join(_line(line, month_text(invoice.period)) for line in lines)
    return (
        '<table><thead><tr><th>#</th><th>Description</th><th class="n">Quantity</th>'
        '<th class="n">USD per hour</th><th class="n">USD</th></tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table>"
    )


def _line(line: InvoiceLine, period: str) -> str:
    quantity = price = ""
    if line.unit_seconds is not None and line.unit is not None:
        quantity = f"{_hours(line.unit_seconds)} {_UNITS[line.unit]}"
    if line.nano_per_unit_hour is not None:
        price = exact(line.nano_per_unit_hour)
    description, remarks = _description(line, period)
    small = f"<small>{', '.join(remarks)}</small>" if remarks else ""
    return (
        f'<tr><td>{line.number}</td><td>{description}{small}</td><td class="n">{quantity}</td>'
        f'<td class="n">{price}</td><td class="n">{cents(line.cents)}</td></tr>'
    )


def _description(line: InvoiceLine, period: str) -> tuple[str, list[str]]:
    """What a line is for, and what is to be said about it."""
    if line.kind is LineKind.CREDIT:
        why = "" if line.reason is None else f": {isolated(line.reason)}"
        if line.amount_nano > 0:
            return f"Credit taken back{why}", ["an earlier invoice had used it"]
        return f"Credit used{why}", ["paid for by a credit that we gave"]
    if line.kind is LineKind.ADJUSTMENT:
        return "Rounding down to whole cents", [
            f"exactly {exact(line.amount_nano)} USD, which went back to the prepaid balance"
        ]
    remarks = [(line.purchase or "").replace("_", " ")]
    remarks += [line.sla] if line.sla not in (None, SlaTier.BRONZE) else []
    remarks += ["stopped"] if line.stopped else []
    remarks += ["rest of the term, not used"] if line.unused else []
    if line.used_in is not None and month_text(line.used_in) != period:
        remarks.append(f"corrects {month_text(line.used_in)}")
    return f"{isolated(line.sku or '')} for the project {isolated(line.project or '')}", [
        text(remark) for remark in remarks if remark
    ]


def _by(invoice: Invoice) -> str:
    return "" if invoice.due_at is None else f", to be paid by {invoice.due_at:%Y-%m-%d}"


def _totals(invoice: Invoice, credit_notes: Sequence[CreditNote]) -> str:
    """What the lines come to, as it was issued, and what the tax of credit notes leaves to pay of it."""
    rows = [
        ("", "Subtotal", invoice.subtotal_cents),
        ("", f"Tax, {tax_rate(invoice)}", invoice.tax_cents),
        ("sum", "Total", invoice.total_cents),
        ("", "Paid from the balance", -invoice.paid_cents),
        ("sum", f"Due{_by(invoice)}", invoice.due_cents),
    ]
    if credit_notes:
        rows += [("", f"Tax of {text(note.number)}", -note.tax_cents) for note in credit_notes]
        left = invoice.left_cents(credited_by(credit_notes))
        beyond_tax = invoice.due_cents - sum(note.tax_cents for note in credit_notes) - left
        if beyond_tax:
            rows.append(("", "Of the credit notes, what the balance had not paid", -beyond_tax))
        rows.append(("sum", "Due after credit notes", left))
    return totals((style, name, cents(amount)) for style, name, amount in rows)


def _remarks(full: FullInvoice) -> Iterable[str]:
    if full.invoice.reverse_charge:
        # Article 226 (11a) demands the two words.
        yield "<p>Reverse charge: the customer is liable for the payment of the tax.</p>"
    for note in full.credit_notes:
        lowers = f"{cents(note.net_cents)} USD and its tax by {cents(note.tax_cents)} USD"
        yield (
            f"<p>Credit note {text(note.number)} of {note.issued_at.astimezone(UTC):%Y-%m-%d} lowers the subtotal by"
            f" {lowers}; {exact(note.to_wallet_nano)} USD went to the balance, and {exact(note.less_owed_nano)} USD"
            " less is due."
            f" Reason: {isolated(note.reason)}</p>"
        )


def _hours(unit_seconds: int) -> str:
    """Hours with four places; the exact quantity is in seconds."""
    parts = (unit_seconds * 10_000 + 1_800) // 3_600
    return f"{parts // 10_000:,}.{parts % 10_000:04d}"
