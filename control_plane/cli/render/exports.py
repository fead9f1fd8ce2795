"""Exports on the screen."""

from collections.abc import Sequence
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.export_files import Change, Changes, Checked
from control_plane.cli.render.layout import facts, table
from control_plane.wire.exports import ExportView

SHOWN_MAX = 20
"""Rows that a comparison shows; all of them are in its JSON."""


def export_table(exports: Sequence[ExportView]) -> RenderableType:
    if not exports:
        return Text("No exports.")
    rows = [
        (
            export.id,
            export.period,
            export.status,
            f"{export.created_at:%Y-%m-%d %H:%M}",
            f"{export.files[0].rows:,}" if export.files else "-",
        )
        for export in exports
    ]
    columns = ("EXPORT", "PERIOD", "STATUS", "CREATED (UTC)", "ROWS")
    return table(columns, rows, whole=columns)


def checked_lines(checked: Checked) -> RenderableType:
    said = checked.manifest
    return Group(
        Text(f"The export is whole: {said['rows']:,} rows.", style="bold green"),
        facts(
            ("Export", said["run"]),
            ("Period", f"{said['period']}, {said['status']}"),
            ("Covers", said["covers"]),
            ("Billed", f"{Decimal(said['sums']['BilledCost']):,f} {said['currency']}"),
            ("Manifest", f"sha256 {checked.sha256}"),
            ("Before it", said["previous"]["run"] if said["previous"] else "none"),
        ),
    )


def difference_lines(found: Changes) -> RenderableType:
    """The first rows that differ, and what all of them change."""
    if not found.count:
        return Text("Both exports have the same rows.", style="bold green")
    rows = [(change.charge, _what(change), f"{change.billed:+f}") for change in found.first]
    more = found.count - len(rows)
    columns = ("CHARGE", "CHANGE", "BILLED (USD)")
    return Group(
        table(columns, rows, whole=("CHARGE", "BILLED (USD)")),
        Text(f"{more:,} more." if more > 0 else "", end="\n" if more > 0 else ""),
        Text(f"{found.count:,} rows differ. Billed: {found.billed:+f} USD."),
    )


def _what(change: Change) -> str:
    if change.before is None:
        return "added"
    if change.after is None:
        return "removed"
    return f"changed: {', '.join(change.columns)}"
