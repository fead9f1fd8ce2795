"""Queries on leases that are to be released by themselves, and on those that nothing is left of."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.leases import COLUMNS
from control_plane.db.rows import read, read_one
from control_plane.db.tables.marks import among
from control_plane.domain.ids import LeaseId
from control_plane.domain.lease import LIVE, Lease, LeaseState
from control_plane.domain.machine import MachineState

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


async def take_finished(connection: Connection, *, limit: int) -> Sequence[Lease]:
    """Ending leases whose claims are released and whose machines are confirmed gone, locked for this transaction."""
    return await read(connection, _TAKE_FINISHED, Lease, limit=limit)
