"""Journal lines on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.lease_overviews import Line
from control_plane.wire.journal import JournalLine


def journal_line(line: Line) -> JournalLine:
    return JournalLine(
        number=line.number,
        at=line.at,
        actor_kind=line.actor_kind,
        actor=line.actor,
        request_id=line.request_id,
        event=line.event,
        machine_id=None if line.machine_id is None else on_wire(Prefix.MACHINE, line.machine_id),
        state_before=line.state_before,
        state_after=line.state_after,
        why=line.why,
    )
