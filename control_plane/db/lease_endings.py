"""Queries on leases that end by themselves, on terms that end soon, and on leases of which nothing is left."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.leases import COLUMNS
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import LeaseId
from control_plane.domain.lease import LIVE, Lease, LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.notice import NoticeKind

_SELECT = f"SELECT {COLUMNS} FROM leases l"
_DUE_FOR_RELEASE = text(f"""
SELECT id FROM leases WHERE {among("state", LIVE)} AND release_at <= :now ORDER BY release_at, id LIMIT :limit
""")
_TAKE_RELEASING = text(f"""
{_SELECT} WHERE id = :id AND {among("state", LIVE)} AND release_at <= :now FOR NO KEY UPDATE SKIP LOCKED
""")
# A lease on a slot ends while its node stays; a lease on a whole machine ends when the machine is gone.
_TAKE_FINISHED = text(f"""
{_SELECT} WHERE state = '{LeaseState.ENDING}' AND NOT EXISTS (
  SELECT FROM claims c JOIN machines m ON m.id = c.machine_id
  WHERE c.lease_id = l.id AND (c.released_at IS NULL OR (c.slot IS NULL AND m.state <> '{MachineState.GONE}')))
ORDER BY id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
""")


async def due_for_release(connection: Connection, *, now: datetime, limit: int) -> Sequence[LeaseId]:
    """Leases that are to be released by themselves, the longest due first: ready, or waiting for another machine."""
    return await read(connection, _DUE_FOR_RELEASE, LeaseId, now=now, limit=limit)


async def take_releasing(connection: Connection, lease_id: LeaseId, *, now: datetime) -> Lease | None:
    """One of them, locked for this transaction; None when it ended meanwhile, or another worker has it."""
    return await read_one(connection, _TAKE_RELEASING, Lease, id=lease_id, now=now)


@dataclass(frozen=True, slots=True)
class EndingTerm:
    """A lease whose term is over soon."""

    id: LeaseId
    name: str
    release_at: datetime


# A term that is no longer than the time before its end has no notice for that.
_TERMS = text(f"""
SELECT l.id, l.name, l.release_at FROM leases l
JOIN claims c ON c.lease_id = l.id AND c.organization_id = l.organization_id AND c.ended_at IS NULL
  AND c.admitted_at IS NOT NULL
JOIN unnest(CAST(:days AS integer[])) ahead ON l.committed_days > ahead
  AND l.release_at <= CAST(:now AS timestamptz) + ahead * interval '1 day'
  AND NOT EXISTS (SELECT FROM notices n WHERE n.lease_id = l.id AND n.organization_id = l.organization_id
    AND n.kind = '{NoticeKind.TERM_ENDING}' AND n.at >= l.release_at - ahead * interval '1 day')
WHERE {among("l.state", LIVE)} AND l.committed_days IS NOT NULL AND l.release_at > :now
  AND (CAST(:lease_id AS uuid) IS NULL OR l.id = :lease_id)
GROUP BY l.id ORDER BY l.release_at, l.id LIMIT :limit
""")
_TERM_NOTICE = text(f"""
INSERT INTO notices (organization_id, project_id, lease_id, machine_id, at, kind, message, planned_at)
SELECT c.organization_id, c.project_id, c.lease_id, c.machine_id, :now, '{NoticeKind.TERM_ENDING}', :message,
       l.release_at
FROM leases l JOIN claims c ON c.lease_id = l.id AND c.organization_id = l.organization_id AND c.ended_at IS NULL
  AND c.admitted_at IS NOT NULL
WHERE l.id = :id
""")


async def ending_terms(
    connection: Connection,
    *,
    days: Sequence[int],
    now: datetime,
    limit: int,
    lease_id: LeaseId | None = None,
) -> Sequence[EndingTerm]:
    """Leases whose term is over within so many days, and whose customers were not told so since then.

    With `lease_id`, only this one.
    """
    values = {"days": list(days), "now": now, "limit": limit, "lease_id": lease_id}
    return await read(connection, _TERMS, EndingTerm, **values)


async def announce(connection: Connection, lease_id: LeaseId, message: str, *, now: datetime) -> None:
    """Tell the customer of a locked lease when its term is over."""
    await write(connection, _TERM_NOTICE, id=lease_id, message=message, now=now)


async def take_finished(connection: Connection, *, limit: int) -> Sequence[Lease]:
    """Ending leases whose claims are released and whose machines are confirmed gone, locked for this transaction."""
    return await read(connection, _TAKE_FINISHED, Lease, limit=limit)
