"""Usage and bills on the screen. Tables show cents; the exact amounts are in `--json` and `--csv`."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli.render.layout import Cell, facts, heading, table
from control_plane.cli.words import cents, gpu_hours, price, rounded, span
from control_plane.domain.money import Nano
from control_plane.wire.billing import BillView, UsageRow


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
    total = Nano(sum(charge.amount.nano for charge in charges))
    rows.append(_total("Total", "", "", "", "", gpu_hours(seconds), cents(total)))
    columns = ("LEASE", "PROJECT", "SKU", "FROM (UTC)", "LENGTH", "GPU-HOURS", "USD")
    made = table(columns, rows, right=columns[4:], whole=("SKU",), varying=("PROJECT",))
    return Group(heading("Usage", period), Text(), made, Text(), _rounding_note())


def bill_page(bill: BillView) -> RenderableType:
    owed = Nano(bill.amount.nano + bill.unrated.nano)
    return Group(
        heading(f"{bill.since.astimezone(UTC):%B %Y} so far", "calendar month, UTC"),
        Text(),
        _bill_lines(bill) if bill.lines else Text("Nothing was used."),
        Text(),
        facts(
            ("Used", f"{cents(owed)} USD, of which {rounded(bill.amount)} posted"),
            ("Balance", f"{rounded(bill.balance)} USD"),
            ("On hold", f"{rounded(bill.held)} USD"),
            ("Available", f"{rounded(bill.available)} USD"),
        ),
        Text(),
        _rounding_note(),
    )


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
    seconds = sum(line.gpu_seconds + line.unrated_gpu_seconds for line in bill.lines)
    rows.append(_total("Total", "", "", "", gpu_hours(seconds), rounded(bill.amount), rounded(bill.unrated)))
    columns = ("LEASE", "PROJECT", "SKU", "USD/GPU-H", "GPU-HOURS", "POSTED", "NOT RATED YET")
    return table(columns, rows, right=columns[3:], whole=("SKU",), varying=("PROJECT",))


def _total(*cells: str) -> list[Cell]:
    return [Text(cell, style="bold") for cell in cells]


def _rounding_note() -> Text:
    return Text("Amounts are rounded to cents; --json has them to the nano-dollar.", style="dim")
