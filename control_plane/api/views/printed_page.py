"""Documents as pages of HTML that are read in a browser, printed on A4 and kept as files.

A page is whole: it loads nothing, runs nothing, and forbids both to itself, so that a saved copy stays what it was.
Every text that a customer or a provider can choose is escaped, and isolated from the direction of the text around it.
"""

import base64
import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from control_plane.domain.invoice import Invoice
from control_plane.domain.money import NANO_PER_CENT, Nano, dollars, usd

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
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters and invisible ones, which could turn the order of a line around."""
_MINUS = "\N{MINUS SIGN}"


def page(title: str, parts: Iterable[str]) -> bytes:
    """A page with this heading, in UTF-8. `parts` are HTML."""
    body = "\n".join([f"<h1>{text(title)}</h1>", *parts])
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    ).encode()


def text(written: str) -> str:
    """A text of somebody else's, for the page: escaped, and without characters that nobody sees."""
    seen = (
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _CONTROLS else character
        for character in written
    )
    return escape("".join(seen))


def isolated(written: str) -> str:
    """The same between other words: a name that is written from right to left does not move its neighbours."""
    return f"<bdi>{text(written)}</bdi>"


def parties(invoice: Invoice) -> str:
    seller = _party("From", invoice.seller, invoice.seller_address, None, invoice.seller_tax_id)
    buyer = _party("To", invoice.legal_name, invoice.address, invoice.country, invoice.tax_id)
    return f'<div class="parties">{seller}{buyer}</div>'


def _party(heading: str, name: str, address: Sequence[str], country: str | None, tax_id: str | None) -> str:
    lines = [f"<strong>{isolated(name)}</strong>", *map(isolated, address)]
    lines += [] if country is None else [isolated(country)]
    lines += [] if tax_id is None else [f"Tax id {isolated(tax_id)}"]
    return f"<section><h2>{heading}</h2><p>{'<br>'.join(lines)}</p></section>"


def facts(named: Sequence[tuple[str, str | None]]) -> str:
    """Names with a value each; those without one are left out."""
    shown = "".join(f"<dt>{name}</dt><dd>{text(value)}</dd>" for name, value in named if value is not None)
    return f"<dl>{shown}</dl>"


def totals(rows: Iterable[tuple[str, str, str]]) -> str:
    """Amounts below a table: for each the class of its row, its name in HTML, and the amount."""
    shown = "\n".join(
        f'<tr class="{style}"><td>{name}</td><td class="n">{amount} USD</td></tr>'
        for style, name, amount in rows
    )
    return f'<table class="totals"><tbody>\n{shown}\n</tbody></table>'


def tax_rate(invoice: Invoice) -> str:
    """The rate of tax: `19 %`, `8.1 %`, or `reverse charge`."""
    if invoice.reverse_charge:
        return "reverse charge"
    whole, rest = divmod(invoice.tax_rate, 100)
    return f"{whole}{f'.{rest:02d}'.rstrip('0') if rest else ''} %"


def cents(amount: int) -> str:
    return dollars(Nano(amount * NANO_PER_CENT)).replace("-", _MINUS)


def exact(amount: Nano) -> str:
    """The exact amount, with at least two places."""
    whole, _, places = usd(Nano(abs(amount))).partition(".")
    return f"{_MINUS if amount < 0 else ''}{int(whole):,}.{places[:2]}{places[2:].rstrip('0')}"
