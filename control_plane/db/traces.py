"""Where leases are in their traces, so that loops can go on with the trace of the request that they work for.

Nothing here runs while traces are off. A lease follows the request that created it, and from its release on the
request that released it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.ids import LeaseId, MachineId

_FOLLOW = text("UPDATE leases SET traceparent = :traceparent WHERE id = :id")
_OF_LEASES = text(
    "SELECT id AS subject, id AS lease_id, traceparent FROM leases WHERE id = ANY(:ids) AND traceparent IS NOT NULL"
)
# A machine of a pool or a node had other leases before, or has several now: the newest of its claims counts.
_OF_MACHINES = text("""
SELECT DISTINCT ON (c.machine_id) c.machine_id AS subject, l.id AS lease_id, l.traceparent
FROM claims c JOIN leases l ON l.id = c.lease_id
WHERE c.machine_id = ANY(:ids) AND l.traceparent IS NOT NULL
ORDER BY c.machine_id, c.claimed_at DESC, c.id
""")


@dataclass(frozen=True, slots=True)
class Traced:
    """The trace that work on a lease, or on its machine, belongs to."""

    subject: UUID
    """The lease, or the machine."""
    lease_id: LeaseId
    traceparent: str


async def follow(connection: Connection, lease_id: LeaseId, traceparent: str | None) -> None:
    """Let a lease follow the request that we are in; nothing changes while traces are off."""
    if traceparent is not None:
        await write(connection, _FOLLOW, id=lease_id, traceparent=traceparent)


async def of_leases(connection: Connection, lease_ids: Sequence[LeaseId]) -> Mapping[UUID, Traced]:
    return {found.subject: found for found in await read(connection, _OF_LEASES, Traced, ids=list(lease_ids))}


async def of_machines(connection: Connection, machine_ids: Sequence[MachineId]) -> Mapping[UUID, Traced]:
    found = await read(connection, _OF_MACHINES, Traced, ids=list(machine_ids))
    return {traced.subject: traced for traced in found}
