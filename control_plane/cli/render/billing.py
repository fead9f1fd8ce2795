"""Usage and bills on the screen. Tables show cents; the exact amounts are in `--json` and `--csv`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli.render.layout import Cell, facts, heading, table
from control_plane.cli.words import cents, price, rounded, span, unit_hours
from control_plane.wire.billing import BillView, ProjectTotalView, ReconciliationView, UsageRow
from control_plane.wire.common import Money


def usage_table(charges: Sequence[UsageRow], since: datetime, until: datetime) -> RenderableType:
    period = f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
    if not charges:
        return Text(f"No usage was rated from {period}.")
    named = any(charge.unit != "gpu" for charge in charges)
    rows: list[Sequence[Cell]] = [
        (
            _name(charge.lease_name, stopped=charge.stopped),
            charge.project,
            charge.sku,
            f"{charge.started_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            span(charge.ended_at - charge.started_at),
            _used(charge.unit, charge.unit_seconds, named=named),
            rounded(charge.amount),
        )
        for charge in charges
    ]
    seconds = _by_unit((charge.unit, charge.unit_seconds) for charge in charges)
    total = sum(charge.amount.nano for charge in charges)
    rows += _sums(("Total", "", "", "", ""), seconds, (cents(total),), named=named)
    columns = ("LEASE", "PROJECT", "SKU", "FROM (UTC)", "LENGTH", "USED" if named else "GPU-HOURS", "USD")
    made = table(columns, rows, right=columns[4:], whole=("SKU",), varying=("PROJECT",))
    return Group(heading("Usage", period), Text(), made, Text(), _rounding_note())


def _name(lease: str, *, stopped: bool) -> str:
    return f"{lease} (stopped)" if stopped else lease


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
            ("Warning", None if bill.balance_warning is None else Text(bill.balance_warning, style="yellow")),
        ),
        Text(),
        _rounding_note(),
    )


def _of_organization(amount: Money | None) -> str:
    """An amount of the organization, which is not shown to somebody who sees only a part of it."""
    return "not shown to you" if amount is None else f"{rounded(amount)} USD"


def _bill_lines(bill: BillView) -> Table:
    named = any(line.unit != "gpu" for line in bill.lines)
    rows: list[Sequence[Cell]] = [
        (
            _name(line.name, stopped=line.stopped),
            line.project,
            line.sku,
            price(line.price_per_unit_hour),
            _used(line.unit, line.unit_seconds + line.unrated_unit_seconds, named=named),
            rounded(line.amount),
            rounded(line.unrated),
        )
        for line in bill.lines
    ]
    if len(bill.projects) > 1:
        rows += [row for project in bill.projects for row in _subtotal(project, named=named)]
    seconds = _by_unit((line.unit, line.unit_seconds + line.unrated_unit_seconds) for line in bill.lines)
    amounts = (rounded(bill.amount), rounded(bill.unrated))
    rows += _sums(("Total", "", "", ""), seconds, amounts, named=named)
    units = ("USD/UNIT-H", "USED") if named else ("USD/GPU-H", "GPU-HOURS")
    columns = ("LEASE", "PROJECT", "SKU", *units, "POSTED", "NOT RATED YET")
    return table(columns, rows, right=columns[3:], whole=("SKU",), varying=("PROJECT",))


_HOURS = {"gpu": "GPU-h", "machine": "machine-h"}
"""The hours of a unit, where a table has more than GPUs."""


def _by_unit(seconds: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """The sums of seconds by their unit, GPUs first."""
    found: dict[str, int] = {}
    for unit, number in seconds:
        found[unit] = found.get(unit, 0) + number
    return dict(sorted(found.items()))


def _used(unit: str, seconds: int, *, named: bool) -> str:
    """Seconds of a unit as hours, with its name unless the whole table is about GPUs."""
    return f"{unit_hours(seconds)} {_HOURS.get(unit, unit)}" if named else unit_hours(seconds)


def _sums(
    before: Sequence[str], seconds: Mapping[str, int], after: Sequence[str], *, named: bool
) -> list[Sequence[Cell]]:
    """A row of sums. Hours of GPUs and of machines are not added up, so each further unit has a row of its own."""
    first, *others = [_used(unit, number, named=named) for unit, number in seconds.items()] or [""]
    blank = ["" for _ in before]
    return [
        _total(*before, first, *after),
        *(_total(*blank, used, *("" for _ in after)) for used in others),
    ]


def _subtotal(project: ProjectTotalView, *, named: bool) -> list[Sequence[Cell]]:
    of_gpus = project.gpu_seconds + project.unrated_gpu_seconds
    of_machines = project.machine_seconds + project.unrated_machine_seconds
    seconds = {unit: number for unit, number in (("gpu", of_gpus), ("machine", of_machines)) if number}
    amounts = (rounded(project.amount), rounded(project.unrated))
    return _sums(("Subtotal", project.project, "", ""), seconds or {"gpu": 0}, amounts, named=named)


def reconciliation_page(found: ReconciliationView) -> RenderableType:
    """What was rated beside what was posted. Any difference is an error of ours, and red."""
    agree = found.difference.nano == 0
    machines = f", {unit_hours(found.machine_seconds)} machine-hours" if found.machine_seconds else ""
    verdict = (
        Text("✓ Charges and ledger agree.", style="green")
        if agree
        else Text(f"✗ Charges and ledger differ by {price(found.difference)} USD.", style="bold red")
    )
    return Group(
        verdict,
        Text(),
        facts(
            ("Used", f"{unit_hours(found.gpu_seconds)} GPU-hours{machines}, rated so far"),
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
