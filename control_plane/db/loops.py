"""The last report of every loop, per replica: what an operator looks at first."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows

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
_ALL = text("SELECT * FROM loop_reports ORDER BY loop, account, replica")
_FORGET = text("DELETE FROM loop_reports WHERE finished_at < :before")


async def record(
    connection: AsyncConnection,
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
    values = {
        "loop": loop,
        "account": account,
        "replica": replica,
        "started_at": started_at,
        "finished_at": finished_at,
        "every_seconds": max(1, round(every_seconds)),
        "late_after_seconds": math.ceil(late_after_seconds),
        "looked_at": looked_at,
        "acted_on": acted_on,
        "errors": list(errors),
        "notes": list(notes),
    }
    await connection.execute(_RECORD, values)


async def reports(connection: AsyncConnection) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in await rows(connection, _ALL)]  # noqa: SLF001


async def forget(connection: AsyncConnection, *, before: datetime) -> None:
    """Drop the reports of replicas that are long gone."""
    await connection.execute(_FORGET, {"before": before})
