"""A credit note as a page of HTML.

It is treated as an invoice is, and names the one that it corrects: Directive 2006/112/EC, article 219
(https://eur-lex.europa.eu/eli/dir/2006/112/oj, 2026-11-24).
"""

from collections.abc import Sequence
from datetime import UTC

from control_plane.api.views.printed_page import cents, exact, facts, page, parties, tax_rate, totals
from control_plane.domain.credit_note import CreditNote, CreditNoteLine
from control_plane.services.credit_notes import FullCreditNote


def credit_note_page(full: FullCreditNote) -> bytes:
    """The page of a credit note, in UTF-8. The same credit note gives the same bytes."""
    note, invoice = full.note, full.invoice
    return page(
        f"Credit note {note.number}",
        [
            parties(invoice),
            facts(
                [
                    ("Credit note number", note.number),
                    ("Date of issue", f"{note.issued_at.astimezone(UTC):%Y-%m-%d}"),
                    ("Corrects the invoice", invoice.number),
                    ("Reason", note.reason),
                    ("Currency", "US dollars (USD)"),
                ]
            ),
            _table(full.lines),
            totals(
                [
                    ("", "Sum of the lines", cents(note.credited_cents)),
                    ("", "Of it, used of credits", cents(note.net_cents - note.credited_cents)),
                    ("sum", "Net", cents(note.net_cents)),
                    ("", f"Tax, {tax_rate(invoice)}", cents(note.tax_cents)),
                    ("sum", "Total", cents(note.total_cents)),
                ]
            ),
            _given_back(note),
        ],
    )


def _table(lines: Sequence[CreditNoteLine]) -> str:
    rows = "\n".join(map(_line, lines))
    return (
        '<table><thead><tr><th>#</th><th>Corrects the line</th><th class="n">USD</th></tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table>"
    )


def _line(line: CreditNoteLine) -> str:
    return (
        f'<tr><td>{line.number}</td><td>{line.invoice_line}</td><td class="n">{cents(line.cents)}</td></tr>'
    )


def _given_back(note: CreditNote) -> str:
    parts = [f"{exact(note.to_wallet_nano)} USD went to the balance"] if note.to_wallet_nano else []
    parts += [f"{exact(note.less_owed_nano)} USD less is due"] if note.less_owed_nano else []
    return f"<p>{', and '.join(parts)}.</p>"
