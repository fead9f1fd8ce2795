"""Usage and bills on the screen. Tables show cents; the exact amounts are in `--json` and `--csv`."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli.render.layout import Cell, facts, heading, table
from control_plane.cli.words import cents, gpu_hours, price, rounded, span
from control_plane.wire.billing import BillView, ProjectTotalView, ReconciliationView, UsageRow
from control_plane.wire.common import Money


def usage_table(charges: Sequence[UsageRow], since: datetime, until: datetime) -> RenderableType:
    period = f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
    if not charges:
        return Text(f"No usage was rated from {period}.")
    rows: list[Sequence[Cell]] = [
        (
            charge.lease_name,
            charge.project,
            charge.sku,
            f"{charge.started_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            span(charge.ended_at - charge.started_at),
            gpu_hours(charge.gpu_seconds),
            rounded(charge.amount),
        )
        for charge in charges
    ]
    seconds = sum(charge.gpu_seconds for charge in charges)
    total = sum(charge.amount.nano for charge in charges)
    rows.append(_total("Total", "", "", "", "", gpu_hours(seconds), cents(total)))
    columns = ("LEASE", "PROJECT", "SKU", "FROM (UTC)", "LENGTH", "GPU-HOURS", "USD")
    made = table(columns, rows, right=columns[4:], whole=("SKU",), varying=("PROJECT",))
    return Group(heading("Usage", period), Text(), made, Text(), _rounding_note())


def bill_page(bill: BillView) -> RenderableType:
    owed = bill.amount.nano + bill.unrated.nano
    return Group(
        heading(f"{bill.since.astimezone(UTC):%B %Y} so far", "calendar month, UTC"),
        Text(),
        _bill_lines(bill) if bill.lines else Text("Nothing was used."),
        Text(),
        facts(
            ("Used", f"{cents(owed)} USD, of which {rounded(bill.amount)} posted"),
            ("Balance", _of_organization(bill.balance)),
            ("On hold", _of_organization(bill.held)),
            ("Available", _of_organization(bill.available)),
        ),
        Text(),
        _rounding_note(),
    )


def _of_organization(amount: Money | None) -> str:
    """An amount of the organization, which is not shown to somebody who sees only a part of it."""
    return "not shown to you" if amount is None else f"{rounded(amount)} USD"


def _bill_lines(bill: BillView) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            line.name,
            line.project,
            line.sku,
            price(line.price_per_gpu_hour),
            gpu_hours(line.gpu_seconds + line.unrated_gpu_seconds),
            rounded(line.amount),
            rounded(line.unrated),
        )
        for line in bill.lines
    ]
    if len(bill.projects) > 1:
        rows += [_subtotal(project) for project in bill.projects]
    seconds = sum(line.gpu_seconds + line.unrated_gpu_seconds for line in bill.lines)
    rows.append(_total("Total", "", "", "", gpu_hours(seconds), rounded(bill.amount), rounded(bill.unrated)))
    columns = ("LEASE", "PROJECT", "SKU", "USD/GPU-H", "GPU-HOURS", "POSTED", "NOT RATED YET")
    return table(columns, rows, right=columns[3:], whole=("SKU",), varying=("PROJECT",))


def _subtotal(project: ProjectTotalView) -> Sequence[Cell]:
    hours = gpu_hours(project.gpu_seconds + project.unrated_gpu_seconds)
    return (
        Text("Subtotal", style="bold"),
        Text(project.project, style="bold"),
        "",
        "",
        hours,
        rounded(project.amount),
        rounded(project.unrated),
    )


def reconciliation_page(found: ReconciliationView) -> RenderableType:
    """What was rated beside what was posted. Any difference is an error of ours, and red."""
    agree = found.difference.nano == 0
    verdict = (
        Text("✓ Charges and ledger agree.", style="green")
        if agree
        else Text(f"✗ Charges and ledger differ by {price(found.difference)} USD.", style="bold red")
    )
    return Group(
        verdict,
        Text(),
        facts(
            ("Used", f"{gpu_hours(found.gpu_seconds)} GPU-hours, rated so far"),
            ("Rated", f"{price(found.rated)} USD, the sum of all charges"),
            ("Posted", f"{price(found.posted)} USD, the sum of all postings of charges"),
            ("Difference", f"{price(found.difference)} USD"),
            ("Balance", f"{price(found.balance)} USD, by the postings"),
        ),
    )


def _total(*cells: str) -> list[Cell]:
    return [Text(cell, style="bold") for cell in cells]


def _rounding_note() -> Text:
    return Text(
        "Amounts are rounded to cents, and sums are of exact amounts; --json has them to the nano-dollar.",
        style="dim",
    )
