"""Suppliers' invoices and their match on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import absolute, ago, rounded, spaced
from control_plane.wire.supplier_invoices import (
    MatchDifferenceView,
    MatchedMachineView,
    MatchView,
    SupplierInvoiceView,
)

OPEN_WORDS = frozenset(
    {"price_differs", "time_differs", "amount_differs", "not_on_our_records", "not_on_theirs"}
)


def supplier_invoice_page(invoice: SupplierInvoiceView) -> RenderableType:
    return Group(
        heading(f"Invoice of {invoice.provider}", invoice.period),
        facts(
            ("Import", invoice.id),
            ("Lines", f"{invoice.lines:,}"),
            ("Amount", f"{rounded(invoice.amount)} USD"),
            ("State", _state(invoice)),
            ("Reason", invoice.reason),
            ("SHA-256", invoice.sha256),
        ),
    )


def _state(invoice: SupplierInvoiceView) -> str:
    if invoice.decided_at is None:
        return invoice.state
    return f"{invoice.state} {absolute(invoice.decided_at)} by {invoice.decided_by}"


def supplier_invoice_table(invoices: Sequence[SupplierInvoiceView], now: datetime) -> RenderableType:
    if not invoices:
        return Text(
            "No suppliers' invoices. To import one: splitplane finance supplier-invoice import --help"
        )
    rows = [
        (
            Text(invoice.provider, style="bold"),
            invoice.period,
            f"{invoice.lines:,}",
            rounded(invoice.amount),
            invoice.state,
            ago(invoice.imported_at, now),
        )
        for invoice in invoices
    ]
    columns = ("PROVIDER", "MONTH", "LINES", "USD", "STATE", "IMPORTED")
    return table(columns, rows, right=("LINES", "USD"))


def match_page(found: MatchView) -> RenderableType:
    state = Text("matched", style="green") if found.matched else Text("different", style="bold red")
    steps: list[tuple[str | Text, str]] = [
        ("what customers used, at the suppliers' prices", rounded(found.used)),
        *((_word(step), rounded(step.amount)) for step in found.differences),
        (Text("invoiced", style="bold"), rounded(found.invoiced)),
    ]
    parts: list[RenderableType] = [
        heading(f"Match of {found.month}", ", ".join(found.providers)),
        facts(
            ("State", state),
            ("Until", f"{found.until:%Y-%m-%d %H:%M} UTC"),
            ("Missing", ", ".join(found.missing_invoices) or None),
            ("Machines", f"{found.machines_count:,}, {found.open_count:,} with an open difference"),
            ("Customers", f"were billed {rounded(found.billed)} USD"),
            ("Expected", f"{rounded(found.expected)} USD by the suppliers' own rules"),
        ),
        Text(),
        table(("STEP", "USD"), steps, right=("USD",)),
    ]
    open_ones = [machine for machine in found.machines if machine.open]
    if open_ones:
        columns = ("MACHINE", "EXPECTED USD", "INVOICED USD", "OPEN")
        parts += [Text(), table(columns, list(map(_row, open_ones)), right=columns[1:3], whole=("MACHINE",))]
    return Group(*parts)


def _row(machine: MatchedMachineView) -> tuple[Text | str, ...]:
    words = [spaced(step.word) for step in machine.differences if step.word in OPEN_WORDS]
    return (
        Text(machine.reference, style="bold"),
        rounded(machine.expected),
        rounded(machine.invoiced),
        Text(", ".join(words), style="bold red"),
    )


def _word(step: MatchDifferenceView) -> Text:
    return Text(spaced(step.word), style="bold red" if step.word in OPEN_WORDS else "")
