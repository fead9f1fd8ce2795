"""Consoles on the wire."""

from collections.abc import Sequence

from control_plane.api.views.journal import journal_line
from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.consoles import Console, Line
from control_plane.wire.consoles import ConsoleView


def console_view(console: Console, steps: Sequence[Line] = ()) -> ConsoleView:
    finding = console.finding
    return ConsoleView(
        id=on_wire(Prefix.CONSOLE, console.id),
        lease_id=on_wire(Prefix.LEASE, console.lease_id),
        state=console.state,
        requested_at=console.requested_at,
        answered_at=console.answered_at,
        source=None if finding is None else finding.source,
        provider=None if finding is None else finding.provider,
        machine=None if finding is None else finding.machine,
        lines=finding.printed.lines if finding else (),
        is_cut=finding is not None and finding.printed.is_cut,
        steps=tuple(journal_line(line) for line in steps),
    )
