"""The reconciler's loops on the screen."""

from collections.abc import Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import Cell, heading, indented, pairs, table
from control_plane.cli.words import coarse, plural
from control_plane.wire.loops import LoopView


def loop_table(loops: Sequence[LoopView]) -> RenderableType:
    """Every loop in a row; below the table what a loop that is stuck, failed or has a note says."""
    if not loops:
        return Text("No loop has reported yet; is the reconciler running?", style="yellow")
    columns = ("LOOP", "ACCOUNT", "STATE", "LAST", "LOOKED", "ACTED")
    rows = [
        (
            loop.loop,
            loop.account or "-",
            _state(loop),
            f"{_seconds(loop.age_seconds)} ago",
            f"{loop.looked_at:,}",
            f"{loop.acted_on:,}",
        )
        for loop in loops
    ]
    parts: list[RenderableType] = [table(columns, rows, right=columns[3:])]
    for loop in loops:
        if loop.late or loop.errors or loop.notes:
            parts += [Text(), *_details(loop)]
    return Group(*parts)


def _seconds(seconds: int) -> str:
    return coarse(timedelta(seconds=seconds))


def _state(loop: LoopView) -> Text:
    if loop.late:
        return Text("▲ stuck", style="bold red")
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
