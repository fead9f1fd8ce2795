"""The reconciler's loops on the screen."""

from datetime import timedelta
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import Cell, heading, indented, pairs, table
from control_plane.cli.words import coarse, plural
from control_plane.wire.loops import LoopList, LoopView, MissingLoop

COLUMNS = ("LOOP", "ACCOUNT", "REPLICA", "STATE", "LAST", "LOOKED", "ACTED")


def loop_table(page: LoopList) -> RenderableType:
    """Every loop in a row, by wings; below the table what a loop that is stuck, failed or has a note says."""
    if not page.items:
        return Text("No loop has reported yet; is the reconciler running?", style="yellow")
    parts: list[RenderableType] = [
        table(COLUMNS, _rows(page), right=COLUMNS[4:], whole=("LOOP",), varying=("REPLICA",))
    ]
    for loop in page.items:
        if loop.late or loop.errors or loop.notes:
            parts += [Text(), *_details(loop)]
    return Group(*parts)


def _rows(page: LoopList) -> list[tuple[Cell, ...]]:
    """By wings, and in each by loop and account. A loop that nobody runs adds no column of replicas."""
    rows = [(_place(loop), _reported(loop)) for loop in page.items]
    rows += [(_place(loop), _missing(loop)) for loop in page.missing]
    drawn: list[tuple[Cell, ...]] = []
    for wing, of_wing in groupby(sorted(rows, key=lambda pair: pair[0]), key=lambda pair: pair[0][0]):
        drawn.append((Text(f"{wing or '-'}:", style="bold"), *[""] * (len(COLUMNS) - 1)))
        drawn += [row for _, row in of_wing]
    return drawn


def _place(loop: LoopView | MissingLoop) -> tuple[str, str, str]:
    return loop.wing, loop.loop, loop.account


def _reported(loop: LoopView) -> tuple[Cell, ...]:
    return (
        f"  {loop.loop}",
        loop.account or "-",
        loop.replica,
        _state(loop),
        f"{_seconds(loop.age_seconds)} ago",
        f"{loop.looked_at:,}",
        f"{loop.acted_on:,}",
    )


def _missing(loop: MissingLoop) -> tuple[Cell, ...]:
    return f"  {loop.loop}", loop.account or "-", "", Text("▲ no report", style="bold red"), "-", "-", "-"


def _seconds(seconds: int) -> str:
    return coarse(timedelta(seconds=seconds))


def _state(loop: LoopView) -> Text:
    if loop.late:
        return Text("▲ stuck", style="bold red")
    if loop.stopped:
        return Text("- stopped", style="dim")
    if loop.errors:
        return Text("✗ " + plural(len(loop.errors), "error"), style="red")
    return Text("● ok", style="green")


def _details(loop: LoopView) -> list[RenderableType]:
    where = " ".join(word for word in (loop.account, f"on {loop.replica}") if word)
    lines: list[tuple[Cell, RenderableType]] = []
    if loop.late:
        allowed = _seconds(loop.late_after_seconds)
        silent = f"silent for {_seconds(loop.age_seconds)}; it should report within {allowed}"
        lines.append((Text("▲", style="red"), Text(silent, style="red")))
    lines += [(Text("✗", style="red"), Text(error, style="red")) for error in loop.errors]
    lines += [(" ", Text(note, style="dim")) for note in loop.notes]
    return [heading(loop.loop, where), indented(pairs(lines))]
