"""Queries on machines that operators took out of service."""

from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read_one, write
from control_plane.domain.ids import MachineId
from control_plane.domain.machine import MachineState


@dataclass(frozen=True, slots=True)
class Maintenance:
    id: UUID
    machine_id: MachineId
    since: datetime
    taken_by: str
    why: str
    planned_at: datetime | None
    """When the work is planned."""
    ended_at: datetime | None
    ended_by: str | None


_COLUMNS = "id, machine_id, since, taken_by, why, planned_at, ended_at, ended_by"
_INSERT = text("""
INSERT INTO maintenances (id, machine_id, since, taken_by, why, planned_at)
VALUES (:id, :machine_id, :since, :taken_by, :why, :planned_at)
ON CONFLICT (machine_id) WHERE ended_at IS NULL DO NOTHING
""")
_OPEN = text(f"SELECT {_COLUMNS} FROM maintenances WHERE machine_id = :machine_id AND ended_at IS NULL")
_END = text(f"""
UPDATE maintenances SET ended_at = :now, ended_by = :by WHERE machine_id = :machine_id AND ended_at IS NULL
RETURNING {_COLUMNS}
""")
# The API's role sees machines of its own organization alone. The function shows operators every machine, by descending
# ids: the one before the next id is the wanted one, if it exists.
_VERIFIED = text(f"""
SELECT id FROM fleet_machines(:now, NULL, NULL, NULL, NULL, NULL, false, '{MachineState.VERIFIED}', NULL, NULL, false,
  :next_id, 1) WHERE id = :machine_id
""")


async def may_be_taken(connection: Connection, machine_id: MachineId, *, now: datetime) -> bool:
    """Whether there is such a machine, verified. Only operators get another answer than no."""
    next_id = UUID(int=machine_id.int + 1)
    return (
        await read_one(connection, _VERIFIED, UUID, machine_id=machine_id, next_id=next_id, now=now)
        is not None
    )


async def insert(connection: Connection, taken: Maintenance) -> Maintenance:
    """Take a machine out. Returns how it is out: one that is out already stays as it is."""
    values = asdict(taken)
    values.pop("ended_at")
    values.pop("ended_by")
    await write(connection, _INSERT, **values)
    found = await read_one(connection, _OPEN, Maintenance, machine_id=taken.machine_id)
    if found is None:
        raise LookupError(f"the maintenance of {taken.machine_id} was not stored")
    return found


async def end(connection: Connection, machine_id: MachineId, *, by: str, now: datetime) -> Maintenance | None:
    """Give a machine back to service; None when it is not out."""
    return await read_one(connection, _END, Maintenance, machine_id=machine_id, by=by, now=now)
