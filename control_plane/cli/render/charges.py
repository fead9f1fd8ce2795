"""Charges on the screen, as finance reads them."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import absolute, price, spaced
from control_plane.wire.charges import (
    ChargeExplanationView,
    ChargeTransactionView,
    IntervalView,
    LeaseChargeView,
)
from control_plane.wire.journal import JournalLine


def charge_table(charges: Sequence[LeaseChargeView]) -> RenderableType:
    rows = [
        (charge.id, absolute(charge.started_at), f"{charge.unit_seconds:,}", price(charge.amount))
        for charge in charges
    ]
    columns = ("CHARGE", "FROM", "UNIT-SECONDS", "USD")
    return table(columns, rows, right=("UNIT-SECONDS", "USD"), whole=("CHARGE",))


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
            ("Charged time", f"{absolute(charge.started_at)} to {absolute(charge.ended_at)}"),
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
        ),
    )


def _kind(explained: ChargeExplanationView) -> str:
    tier = "" if explained.sla == "bronze" else f", {explained.sla}"
    return spaced(explained.purchase) + tier + (", stopped" if explained.charge.stopped else "")


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
