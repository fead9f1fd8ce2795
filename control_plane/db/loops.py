"""Queries on the last report of every loop and replica, which an operator looks at first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write


@dataclass(frozen=True, slots=True)
class LoopReport:
    """What a loop did in its last activation, in one replica."""

    loop: str
    account: str
    """Empty for a loop that covers the whole system."""
    replica: str
    started_at: datetime
    finished_at: datetime
    every_seconds: int
    late_after_seconds: int
    """How long after its last report a loop counts as late."""
    looked_at: int
    acted_on: int
    errors: Sequence[str]
    notes: Sequence[str]
    activations: int
    """How many activations were reported. Uneventful ones are reported only every few seconds."""


_RECORD = text("""
INSERT INTO loop_reports (loop, account, replica, started_at, finished_at, every_seconds, late_after_seconds,
                          looked_at, acted_on, errors, notes)
VALUES (:loop, :account, :replica, :started_at, :finished_at, :every_seconds, :late_after_seconds,
        :looked_at, :acted_on, :errors, :notes)
ON CONFLICT (loop, account, replica) DO UPDATE SET
  started_at = excluded.started_at, finished_at = excluded.finished_at, every_seconds = excluded.every_seconds,
  late_after_seconds = excluded.late_after_seconds,
  looked_at = excluded.looked_at, acted_on = excluded.acted_on, errors = excluded.errors, notes = excluded.notes,
  activations = loop_reports.activations + 1
""")
_ALL = text("""
SELECT loop, account, replica, started_at, finished_at, every_seconds, late_after_seconds, looked_at, acted_on,
       errors, notes, activations
FROM loop_reports ORDER BY loop, account, replica
""")
_FORGET = text("DELETE FROM loop_reports WHERE finished_at < :before")


async def record(
    connection: Connection,
    *,
    loop: str,
    account: str,
    replica: str,
    started_at: datetime,
    finished_at: datetime,
    every_seconds: float,
    late_after_seconds: float,
    looked_at: int,
    acted_on: int,
    errors: Sequence[str],
    notes: Sequence[str],
) -> None:
    """Replace the loop's last report in this replica."""
    await write(
        connection,
        _RECORD,
        loop=loop,
        account=account,
        replica=replica,
        started_at=started_at,
        finished_at=finished_at,
        every_seconds=max(1, round(every_seconds)),
        late_after_seconds=math.ceil(late_after_seconds),
        looked_at=looked_at,
        acted_on=acted_on,
        errors=list(errors),
        notes=list(notes),
    )


async def reports(connection: Connection) -> list[LoopReport]:
    """The last reports of all loops in all replicas."""
    return await read(connection, _ALL, LoopReport)


async def forget(connection: Connection, *, before: datetime) -> None:
    """Delete the reports of replicas that have not reported since `before`."""
    await write(connection, _FORGET, before=before)
