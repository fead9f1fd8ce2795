"""Usage and bills on the screen. Tables show cents; the exact amounts are in `--json` and `--csv`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli.render.layout import Cell, facts, heading, table
from control_plane.cli.words import adding_up, cents, price, rounded, sentence, spaced, span, unit_hours
from control_plane.wire.billing import (
    BillLineView,
    BillView,
    ProjectTotalView,
    ReconciliationView,
    SlaCreditView,
    UsageGroupView,
    UsageRow,
    UsageSumsView,
)
from control_plane.wire.common import Money


def usage_table(charges: Sequence[UsageRow], since: datetime, until: datetime) -> RenderableType:
    period = f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
    if not charges:
        return Text(f"No usage was rated from {period}.")
    named = any(charge.unit != "gpu" for charge in charges)
    amounts = adding_up([charge.amount for charge in charges])
    rows: list[Sequence[Cell]] = [
        (
            _name(charge.lease_name, charge),
            charge.project,
            charge.sku,
            f"{charge.started_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            span(charge.ended_at - charge.started_at),
            _used(charge.unit, charge.unit_seconds, named=named),
            cents(amount),
        )
        for charge, amount in zip(charges, amounts, strict=True)
    ]
    seconds = _by_unit((charge.unit, charge.unit_seconds) for charge in charges if not charge.unused)
    rows += _sums(("Total", "", "", "", ""), seconds, (cents(sum(amounts)),), named=named)
    columns = ("LEASE", "PROJECT", "SKU", "FROM (UTC)", "LENGTH", "USED" if named else "GPU-HOURS", "USD")
    made = table(columns, rows, right=columns[4:], whole=("SKU",), varying=("PROJECT",))
    notes = [_unused_note()] if any(charge.unused for charge in charges) else []
    return Group(heading("Usage", period), Text(), made, Text(), *notes, _rounding_note())


def sums_table(sums: UsageSumsView) -> RenderableType:
    month = f"{sums.since.astimezone(UTC):%B %Y}"
    what = sums.label_key or sums.by
    if not sums.groups:
        return Text(f"No usage of {month} is billed.")
    amounts = adding_up([group.amount for group in sums.groups])
    machines, unused = sums.machine_seconds > 0, sums.unused.nano > 0

    def figures(of: UsageGroupView | UsageSumsView, amount: int) -> Iterator[str]:
        yield unit_hours(of.gpu_seconds)
        if machines:
            yield unit_hours(of.machine_seconds)
        yield cents(amount)
        if unused:
            yield rounded(of.unused)

    rows: list[Sequence[Cell]] = [
        (Text(f"no {what}", style="dim") if group.name is None else group.name, *figures(group, amount))
        for group, amount in zip(sums.groups, amounts, strict=True)
    ]
    rows.append(_total("Total", *figures(sums, sum(amounts))))
    columns = (
        what.upper(),
        "GPU-HOURS",
        *(["MACHINE-HOURS"] if machines else []),
        "USD",
        *(["UNUSED USD"] if unused else []),
    )
    title = heading(f"Usage of {month} by {what}", "calendar month, UTC")
    notes = [_unused_note()] if unused else []
    return Group(title, Text(), table(columns, rows, right=columns[1:]), Text(), *notes, _rounding_note())


def _name(lease: str, line: UsageRow | BillLineView) -> str:
    if line.unused:
        return f"{lease} (unused)"
    return f"{lease} (stopped)" if line.stopped else lease


def bill_page(bill: BillView, now: datetime) -> RenderableType:
    """The bill of a month; that of the present one shows the balance as well, because it changes with the bill."""
    of_lines = _billed_and_not(bill)
    billed, unbilled = map(sum, of_lines)
    rest = sum(
        amount + unrated for line, amount, unrated in zip(bill.lines, *of_lines, strict=True) if line.unused
    )
    present = bill.since <= now < bill.until
    balance = (
        ("Balance", _of_organization(bill.balance)),
        ("On hold", _of_organization(bill.held)),
        ("Available", _of_organization(bill.available)),
        ("Warning", None if bill.balance_warning is None else Text(bill.balance_warning, style="yellow")),
    )
    month = f"{bill.since.astimezone(UTC):%B %Y}"
    return Group(
        heading(f"{month} so far" if present else month, "calendar month, UTC"),
        Text(),
        _bill_lines(bill) if bill.lines else Text("Nothing was used."),
        Text(),
        *_sla_credits(bill.sla_credits),
        facts(
            ("Used", f"{cents(billed + unbilled - rest)} USD"),
            ("Unused", f"{cents(rest)} USD" if rest else None),
            ("Billed", f"{cents(billed)} USD"),
            ("Not yet billed", f"{cents(unbilled)} USD" if unbilled else None),
            *(balance if present else ()),
        ),
        Text(),
        *([_unused_note()] if rest else []),
        _rounding_note(),
    )


def _sla_credits(found: Sequence[SlaCreditView]) -> list[RenderableType]:
    """What was given back for broken promises; nothing where none was."""
    if not found:
        return []
    rows = [
        (credit.lease_name, spaced(credit.promise), rounded(credit.amount), sentence(credit.why))
        for credit in found
    ]
    columns = ("LEASE", "BROKEN PROMISE", "CREDIT USD", "WHY")
    return [table(columns, rows, right=("CREDIT USD",)), Text()]


def _of_organization(amount: Money | None) -> str:
    """An amount of the organization, which is not shown to somebody who sees only a part of it."""
    return "not shown to you" if amount is None else f"{rounded(amount)} USD"


def _billed_and_not(bill: BillView) -> tuple[list[int], list[int]]:
    """What each line has billed, and not yet billed, in whole cents that add up."""
    return adding_up([line.amount for line in bill.lines]), adding_up([line.unrated for line in bill.lines])


def _bill_lines(bill: BillView) -> Table:
    named = any(line.unit != "gpu" for line in bill.lines)
    billed, unbilled = _billed_and_not(bill)
    rows: list[Sequence[Cell]] = [
        (
            _name(line.name, line),
            line.project,
            line.sku if line.sla == "bronze" else f"{line.sku} ({line.sla})",
            price(line.price_per_unit_hour),
            _used(line.unit, line.unit_seconds + line.unrated_unit_seconds, named=named),
            cents(amount),
            cents(unrated),
        )
        for line, amount, unrated in zip(bill.lines, billed, unbilled, strict=True)
    ]
    if len(bill.projects) > 1:
        for project in bill.projects:
            own = [index for index, line in enumerate(bill.lines) if line.project_id == project.project_id]
            sums = tuple(cents(sum(amounts[index] for index in own)) for amounts in (billed, unbilled))
            rows += _subtotal(project, sums, named=named)
    seconds = _by_unit(
        (line.unit, line.unit_seconds + line.unrated_unit_seconds) for line in bill.lines if not line.unused
    )
    amounts = (cents(sum(billed)), cents(sum(unbilled)))
    rows += _sums(("Total", "", "", ""), seconds, amounts, named=named)
    units = ("USD/UNIT-H", "USED") if named else ("USD/GPU-H", "GPU-HOURS")
    columns = ("LEASE", "PROJECT", "SKU", *units, "BILLED", "NOT YET BILLED")
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


def _subtotal(project: ProjectTotalView, amounts: Sequence[str], *, named: bool) -> list[Sequence[Cell]]:
    of_gpus = project.gpu_seconds + project.unrated_gpu_seconds
    of_machines = project.machine_seconds + project.unrated_machine_seconds
    seconds = {unit: number for unit, number in (("gpu", of_gpus), ("machine", of_machines)) if number}
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


def _unused_note() -> Text:
    """What no sum of hours has."""
    note = "Unused is the rest of a term, charged at its release; the sums of hours are without it."
    return Text(note, style="dim")


def _rounding_note() -> Text:
    return Text(
        "Amounts are rounded to cents so that they add up; --json has them to the nano-dollar.",
        style="dim",
    )
