"""The audit log on the screen."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.audit_chain import Whole
from control_plane.cli.render.layout import facts, table
from control_plane.wire.audit import AuditEventView

_STYLES = {"allowed": "green", "refused": "yellow", "failed": "red"}
_ID_LENGTH = 12


def event_table(events: Sequence[AuditEventView]) -> RenderableType:
    """Lines, newest first: when, what, what came of it, who, and about what."""
    if not events:
        return Text("No lines.")
    rows = [
        (
            f"{event.at:%m-%d %H:%M:%S}",
            event.event,
            Text(event.code or event.outcome, style=_STYLES.get(event.outcome, "")),
            "\n".join(map(_short, (event.subject, *event.targets))),
        )
        for event in events
    ]
    columns = ("TIME (UTC)", "EVENT", "OUTCOME", "WHO, ABOUT")
    return table(columns, rows, whole=columns[:3])


def _short(wire_id: str) -> str:
    """The prefix and the last digits of an id, which differ where the first ones are a time."""
    head, _, tail = wire_id.partition("_")
    return f"{head}_..{tail[-6:]}" if len(tail) > _ID_LENGTH else wire_id


def whole_lines(check: Whole) -> RenderableType:
    return Group(
        Text(f"The audit log is whole: {check.lines:,} lines.", style="bold green"),
        facts(
            ("Chain", check.chain),
            ("Lines", f"{check.first:,} to {check.sequence:,}" if check.lines else "none"),
            ("Head", f"{check.sequence}:{check.hash}"),
            ("Signed", f"up to line {check.signed:,}" if check.signed else "no"),
            ("Key", check.key or "none"),
        ),
        Text("Keep head and key elsewhere: --head and --key find a chain that was rewritten to its end."),
    )
