"""Journal lines on the wire."""

from typing import Any

from control_plane.domain.ids import Prefix, on_wire
from control_plane.wire.journal import JournalLine


def journal_line(row: Any) -> JournalLine:
    return JournalLine(
        number=row.number,
        at=row.at,
        actor=row.actor,
        event=row.event,
        instance_id=None if row.instance_id is None else on_wire(Prefix.INSTANCE, row.instance_id),
        state_before=row.state_before,
        state_after=row.state_after,
        why=row.why,
    )
