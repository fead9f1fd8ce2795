"""An invoice as a page of HTML that is read in a browser, printed on A4 and kept as a file.

The page is whole: it loads nothing, runs nothing, and forbids both to itself, so that a saved copy stays what it was.
Every text that a customer or a provider can choose is escaped, and isolated from the direction of the text around it.

What an invoice has to say: Directive 2006/112/EC, article 226
(https://eur-lex.europa.eu/eli/dir/2006/112/oj, 2026-11-24).
"""

import base64
import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, timedelta
from html import escape

from control_plane.domain.credit_note import CreditNote
from control_plane.domain.invoice import Invoice, InvoiceLine, InvoiceState, LineKind
from control_plane.domain.money import NANO_PER_CENT, Nano, dollars, usd
from control_plane.domain.period import month_after, month_text
from control_plane.domain.sku import Unit
from control_plane.services.invoices import FullInvoice

_STYLE = """
@page { size: A4; margin: 18mm 16mm; }
:root { color-scheme: light; --line: #cbd2dc; --quiet: #566070; }
* { box-sizing: border-box; }
body { margin: 2rem auto; max-width: 178mm; padding: 0 1rem; color: #111820; background: #fff;
  font: 10.5pt/1.45 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 20pt; line-height: 1.2; margin: 0 0 8mm; }
h2 { font-size: 8.5pt; font-weight: 600; letter-spacing: .06em; text-transform: uppercase; color: var(--quiet);
  margin: 0 0 1mm; }
p { margin: 0 0 3mm; overflow-wrap: anywhere; }
.state { border: 1.5pt solid #b42318; color: #b42318; padding: 2mm 3mm; font-weight: 600; }
.parties { display: grid; grid-template-columns: 1fr 1fr; gap: 8mm; margin-bottom: 6mm; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .5mm 6mm; margin: 0 0 8mm; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; font-size: 8.5pt; color: var(--quiet); border-bottom: 1pt solid #111820; }
th, td { padding: 1.4mm 2mm 1.4mm 0; vertical-align: top; overflow-wrap: anywhere; }
tbody td { border-bottom: .5pt solid var(--line); }
.n { text-align: right; padding-right: 0; padding-left: 3mm; white-space: nowrap; overflow-wrap: normal; }
td small { display: block; color: var(--quiet); }
.totals { width: 60%; margin: 5mm 0 8mm auto; break-inside: avoid; }
.totals td { border: 0; padding-top: .8mm; padding-bottom: .8mm; }
.totals .sum td { border-top: 1pt solid #111820; font-weight: 600; }
thead { display: table-header-group; }
tr { break-inside: avoid; }
@media print { body { margin: 0; max-width: none; padding: 0; } }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
HEADERS = {
    "Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""What the page is sent with."""
_UNITS = {Unit.GPU: "GPU-hours", Unit.MACHINE: "machine-hours"}
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters and invisible ones, which could turn the order of a line around."""
_MINUS = "\N{MINUS SIGN}"


def invoice_page(full: FullInvoice) -> bytes:
    """The page of an invoice or of its draft, in UTF-8. The same invoice gives the same bytes."""
    invoice = full.invoice
    title = "Draft of an invoice" if invoice.number is None else f"Invoice {invoice.number}"
    body = "\n".join(
        [
            f"<h1>{_text(title)}</h1>",
            *_state(full),
            _parties(invoice),
            _facts(invoice),
            _lines(invoice, full.lines),
            _totals(invoice, full.credit_notes),
            *_remarks(full),
        ]
    )
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    ).encode()


def _text(text: str) -> str:
    """A text of somebody else's, for the page: escaped, and without characters that nobody sees."""
    seen = (
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _CONTROLS else character
        for character in text
    )
    return escape("".join(seen))


def _isolated(text: str) -> str:
    """The same between other words: a name that is written from right to left does not move its neighbours."""
    return f"<bdi>{_text(text)}</bdi>"


def _state(full: FullInvoice) -> Iterable[str]:
    state = full.invoice.state(full.credited)
    if state is InvoiceState.DRAFT:
        yield '<p class="state">This is a draft. It is no invoice, and nothing in it is final.</p>'
    if state is InvoiceState.VOIDED:
        yield '<p class="state">This invoice is void: credit notes cover all of it.</p>'


def _parties(invoice: Invoice) -> str:
    seller = _party("From", invoice.seller, invoice.seller_address, None, invoice.seller_tax_id)
    buyer = _party("To", invoice.legal_name, invoice.address, invoice.country, invoice.tax_id)
    return f'<div class="parties">{seller}{buyer}</div>'


def _party(heading: str, name: str, address: Sequence[str], country: str | None, tax_id: str | None) -> str:
    lines = [f"<strong>{_isolated(name)}</strong>", *map(_isolated, address)]
    lines += [] if country is None else [_isolated(country)]
    lines += [] if tax_id is None else [f"Tax id {_isolated(tax_id)}"]
    return f"<section><h2>{heading}</h2><p>{'<br>'.join(lines)}</p></section>"


def _facts(invoice: Invoice) -> str:
    last = month_after(invoice.period) - timedelta(days=1)
    facts = [("Invoice number", invoice.number)]
    if invoice.issued_at is not None:
        facts.append(("Date of issue", f"{invoice.issued_at.astimezone(UTC):%Y-%m-%d}"))
    facts.append(("Period", f"{invoice.period:%Y-%m-%d} to {last:%Y-%m-%d} (UTC)"))
    facts.append(("Currency", "US dollars (USD)"))
    shown = "".join(f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in facts if value is not None)
    return f"<dl>{shown}</dl>"


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
        price = _exact(line.nano_per_unit_hour)
    description, remarks = _description(line, period)
    small = f"<small>{', '.join(remarks)}</small>" if remarks else ""
    return (
        f'<tr><td>{line.number}</td><td>{description}{small}</td><td class="n">{quantity}</td>'
        f'<td class="n">{price}</td><td class="n">{_cents(line.cents)}</td></tr>'
    )


def _description(line: InvoiceLine, period: str) -> tuple[str, list[str]]:
    """What a line is for, and what is to be said about it."""
    if line.kind is LineKind.CREDIT:
        return "Credits used", ["paid for by credits that we gave"]
    if line.kind is LineKind.ADJUSTMENT:
        return "Rounding down to whole cents", [
            f"exactly {_exact(line.amount_nano)} USD, which went back to the prepaid balance"
        ]
    remarks = [(line.purchase or "").replace("_", " ")]
    remarks += ["stopped"] if line.stopped else []
    if line.used_in is not None and month_text(line.used_in) != period:
        remarks.append(f"corrects {month_text(line.used_in)}")
    return f"{_isolated(line.sku or '')} for the project {_isolated(line.project or '')}", [
        _text(remark) for remark in remarks if remark
    ]


def _totals(invoice: Invoice, credit_notes: Sequence[CreditNote]) -> str:
    """What the lines come to, as it was issued, and what the tax of credit notes leaves to pay of it."""
    rows = [
        ("", "Subtotal", invoice.subtotal_cents),
        ("", f"Tax, {_tax_rate(invoice)}", invoice.tax_cents),
        ("sum", "Total", invoice.total_cents),
        ("", "Paid from the prepaid balance", -invoice.paid_cents),
        ("sum", "Due", invoice.due_cents),
    ]
    if credit_notes:
        rows += [("", f"Tax of {_text(note.number)}", -note.tax_cents) for note in credit_notes]
        left = invoice.due_cents - sum(note.tax_cents for note in credit_notes)
        rows.append(("sum", "Due after credit notes", left))
    shown = "\n".join(
        f'<tr class="{style}"><td>{name}</td><td class="n">{_cents(cents)} USD</td></tr>'
        for style, name, cents in rows
    )
    return f'<table class="totals"><tbody>\n{shown}\n</tbody></table>'


def _tax_rate(invoice: Invoice) -> str:
    """The rate of tax: `19 %`, `8.1 %`, or `reverse charge`."""
    if invoice.reverse_charge:
        return "reverse charge"
    whole, rest = divmod(invoice.tax_rate, 100)
    return f"{whole}{f'.{rest:02d}'.rstrip('0') if rest else ''} %"


def _remarks(full: FullInvoice) -> Iterable[str]:
    if full.invoice.reverse_charge:
        # Article 226 (11a) demands the two words.
        yield "<p>Reverse charge: the customer is liable for the payment of the tax.</p>"
    for note in full.credit_notes:
        lowers = f"{_cents(note.net_cents)} USD and its tax by {_cents(note.tax_cents)} USD"
        yield (
            f"<p>Credit note {_text(note.number)} of {note.issued_at.astimezone(UTC):%Y-%m-%d} lowers the subtotal by"
            f" {lowers}; {_exact(note.balance_nano)} USD went back to the prepaid balance. {_isolated(note.reason)}</p>"
        )


def _hours(unit_seconds: int) -> str:
    """Hours with four places; the exact quantity is in seconds."""
    parts = (unit_seconds * 10_000 + 1_800) // 3_600
    return f"{parts // 10_000:,}.{parts % 10_000:04d}"


def _cents(cents: int) -> str:
    return dollars(Nano(cents * NANO_PER_CENT)).replace("-", _MINUS)


def _exact(amount: Nano) -> str:
    """The exact amount, with at least two places."""
    whole, _, places = usd(amount).partition(".")
    return f"{whole.replace('-', _MINUS)}.{places[:2]}{places[2:].rstrip('0')}"
