"""Queries on the deadlines of machines: which have passed, and another one."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.db.tables.marks import among
from control_plane.domain.deadline import HAVE_DEADLINES, OverdueMachine
from control_plane.domain.ids import MachineId
from control_plane.domain.machine import MachineState

# While an account does not answer, its lists are still tried, and the next one is due right after the last try.
_ATTENDED_UNTIL = f"""
CASE m.state WHEN '{MachineState.INTENDED}' THEN CASE WHEN m.asked_at IS NOT NULL THEN m.due_at END
             WHEN '{MachineState.BOOTSTRAPPING}' THEN m.tried_at
             ELSE greatest(a.listing_asked_at, CASE WHEN a.failing_since IS NOT NULL THEN a.listing_due_at END) END
"""
# A worker that holds a machine at its deadline may finish: its hold expires soon.
_OVERDUE = text(f"""
SELECT m.id, m.account, m.state, m.generation, m.created_at, m.deadline_at, {_ATTENDED_UNTIL} AS attended_until
FROM machines m JOIN provider_accounts a ON a.name = m.account
WHERE {among("m.state", HAVE_DEADLINES)} AND m.deadline_at <= :now AND {work.FREE}
ORDER BY m.deadline_at, m.id LIMIT :limit
""")
_EXTEND = text("UPDATE machines SET deadline_at = :until WHERE id = ANY(:ids) AND deadline_at <= :now")


async def overdue(connection: Connection, *, now: datetime, limit: int) -> list[OverdueMachine]:
    """Machines past their deadline that no worker holds now, oldest deadline first. `domain/deadline.py` decides."""
    return await read(connection, _OVERDUE, OverdueMachine, now=now, limit=limit)


async def extend(
    connection: Connection, machine_ids: Sequence[MachineId], *, until: datetime, now: datetime
) -> None:
    """Give machines that are past their deadline another one, unless they moved on meanwhile."""
    await write(connection, _EXTEND, ids=list(machine_ids), until=until, now=now)
