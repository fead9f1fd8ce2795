"""Charges on the screen, as finance reads them."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import absolute, exact_usd, plural, price, spaced
from control_plane.wire.charges import (
    ChargeExplanationView,
    ChargeTransactionView,
    IntervalView,
    LeaseChargeView,
)
from control_plane.wire.invoices import InvoiceLineView, InvoiceView
from control_plane.wire.journal import JournalLine


def charge_table(charges: Sequence[LeaseChargeView]) -> RenderableType:
    rows = [
        (charge.id, _from(charge), f"{charge.unit_seconds:,}", price(charge.amount)) for charge in charges
    ]
    columns = ("CHARGE", "FROM", "UNIT-SECONDS", "USD")
    return table(columns, rows, right=("UNIT-SECONDS", "USD"), whole=("CHARGE",))


def _from(charge: LeaseChargeView) -> str:
    """When it began, and whether it is no use of a machine that was on."""
    what = ", unused" if charge.unused else ", stopped" if charge.stopped else ""
    return absolute(charge.started_at) + what


def line_heading(invoice: InvoiceView, line: InvoiceLineView) -> RenderableType:
    """Which line it is, and whose."""
    return Group(
        heading(f"Line {line.number} of {invoice.number}", f"{price(line.exact)} USD"),
        facts(
            ("Customer", f"{invoice.legal_name} ({invoice.organization_id})"),
            ("Used by", line.project),
            ("Sold", _sold(line)),
            ("Used in", line.used_in),
            ("Printed as", f"{price(line.amount)} USD"),
        ),
        Text(),
    )


def _sold(line: InvoiceLineView) -> str | None:
    if line.sku is None or line.purchase is None:
        return None
    tier = "" if line.sla in (None, "bronze") else f", {line.sla}"
    stopped = ", stopped" if line.stopped else ""
    rest = ", rest of the term, not used" if line.unused else ""
    what = f"{line.sku}, {spaced(line.purchase)}{tier}{stopped}{rest}"
    return f"{what}, {price(line.price)} USD for a unit and an hour"


def no_charges_line(line: InvoiceLineView) -> RenderableType:
    """Why a line has no charges."""
    if line.kind == "credit":
        return Text(f"It is a credit, and has no charges: {line.reason or 'no reason is known'}.")
    return Text("It is the rounding to whole cents, and has no charges.")


def line_sum(line: InvoiceLineView, count: int, nano: int) -> RenderableType:
    """Whether the charges add up to the line."""
    right = nano == line.exact.nano
    return Text(
        f"\n{plural(count, 'charge')} add up to {exact_usd(nano)} USD; the line is {price(line.exact)} USD.",
        style="" if right else "bold red",
    )


def explanation_page(explained: ChargeExplanationView) -> RenderableType:
    """The chain from the journal to the ledger, in its order."""
    charge, its_price = explained.charge, explained.price
    closed = "closed" if explained.period_closed else "not closed"
    return Group(
        heading(charge.id, f"{price(charge.amount)} USD"),
        facts(
            ("Customer", f"{explained.organization} ({explained.organization_id})"),
            ("Lease", explained.lease_id),
            ("Machine", explained.machine_id),
            ("Charged time", _time(charge)),
        ),
        Text(),
        facts(
            *((f"Journal {line.number}", _event(line)) for line in explained.journal),
            *_interval(charge, explained.interval),
            (
                "Price",
                f"{price(its_price.per_unit_hour)} USD for a unit and an hour of {explained.sku}, {_kind(explained)}",
            ),
            (
                "Price book",
                f"{its_price.price_book}, from {absolute(its_price.price_book_from)} on: {price(its_price.listed)} USD",
            ),
            ("Charge", f"{charge.unit_seconds:,} unit-seconds, {price(charge.amount)} USD"),
            *_transaction(charge, explained.transaction),
            ("Period", f"{charge.period}, {closed}"),
            ("Invoice", _invoice_line(explained)),
        ),
    )


def _time(charge: LeaseChargeView) -> str:
    since = absolute(charge.started_at)
    if charge.unused:
        return f"none: the rest of its term, which was released at {since}"
    return f"{since} to {absolute(charge.ended_at)}"


def _invoice_line(explained: ChargeExplanationView) -> str:
    line = explained.invoice_line
    return "not issued yet" if line is None else f"{line.invoice}, line {line.line}"


def _kind(explained: ChargeExplanationView) -> str:
    tier = "" if explained.sla == "bronze" else f", {explained.sla}"
    rest = ", rest of the term, not used" if explained.charge.unused else ""
    return spaced(explained.purchase) + tier + (", stopped" if explained.charge.stopped else "") + rest


def _event(line: JournalLine) -> str:
    states = f", {line.state_before} to {line.state_after}" if line.state_after else ""
    return f"{absolute(line.at)} {spaced(line.event)}{states} by {line.actor}"


def _interval(charge: LeaseChargeView, interval: IntervalView | None) -> Iterator[tuple[str, str | Text]]:
    if interval is None:
        yield "Interval", Text(f"There is no interval {charge.interval}.", style="bold red")
        return
    yield "Before it", f"{interval.unit_seconds_before:,} unit-seconds at the same price"
    yield "Interval", f"{charge.interval}: {interval.unit_seconds:,} unit-seconds"
    right = interval.cost.nano == charge.amount.nano
    yield "Its cost", Text(f"{price(interval.cost)} USD", style="" if right else "bold red")


def _transaction(
    charge: LeaseChargeView, transaction: ChargeTransactionView | None
) -> Iterator[tuple[str, str | Text]]:
    if transaction is None:
        if charge.amount.nano:
            yield "Transaction", Text("The ledger does not have it.", style="bold red")
        return
    yield "Transaction", transaction.id
    for posting in transaction.postings:
        side = "credit" if posting.amount.nano > 0 else "debit"
        yield "", f"{side} {spaced(posting.account)} {price(posting.amount).removeprefix('-')} USD"
