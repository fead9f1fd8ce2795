"""The journal of a lease on the screen."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from control_plane.cli.render.layout import heading, indented
from control_plane.cli.words import sentence, short_id, spaced, span
from control_plane.wire.journal import JournalLine


def journal_lines(
    lines: Sequence[JournalLine],
    created: datetime,
    *,
    what: str = "Journal",
    first: int | None = None,
    last: int | None = None,
) -> list[RenderableType]:
    """Its lines, with times since `created`. Of more lines than `first` or `last`, these are the first or the last."""
    if not lines:
        return [heading(what), indented(Text("Empty."))]
    made = Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="dim")
    made.add_column(no_wrap=True, style="dim", justify="right")
    made.add_column(overflow="fold")
    day = started = f"{lines[0].at.astimezone(UTC):%Y-%m-%d}"
    for line in lines:
        at = line.at.astimezone(UTC)
        if f"{at:%Y-%m-%d}" != day:
            day = f"{at:%Y-%m-%d}"
            made.add_row(day, "", "")
        made.add_row(f"{at:%H:%M:%S}", f"+{_since(at - created)}", _event(line))
    parts: list[RenderableType] = [
        heading(what, f"UTC from {started}, and since the lease was requested"),
        indented(made),
    ]
    for word, most in (("first", first), ("last", last)):
        if most is not None and len(lines) >= most:
            parts.append(indented(Text(f"These are the {word} {most:,} lines.", style="dim")))
    return parts


def _since(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{max(0.0, seconds):.1f} s" if seconds < 60 else span(length)


def _event(line: JournalLine) -> Text:
    """What happened, to what and by whom, with the reason below."""
    subject = "machine" if line.machine_id else "lease"
    made = Text.assemble((f"{subject} ", "dim"), (spaced(line.event), "bold"))
    before, after = line.state_before, line.state_after
    if after:
        made.append(f"  {before} → {after}" if before and before != after else f"  {after}", style="cyan")
    made.append(f"  ({_actor(line)})", style="dim")
    if line.why:
        made.append(f"\n{sentence(line.why)}")
    return made


def _actor(line: JournalLine) -> str:
    """A loop's name; of a person, the role, and enough of the API key's id to find it."""
    if line.actor_kind == "loop":
        return line.actor
    name = short_id(line.actor, []) if line.actor.startswith("key_") else line.actor
    return f"{line.actor_kind} {name}"
