"""Queries on the journal: reading it, and adding lines that change no state.

State changes write their own lines: see `leases.move` and `machines.move`. A line about a lease belongs to the
lease's organization. A line about a machine is written once for every lease with an open claim on it, and for
each lease that ever claimed the whole machine. While no lease has claimed the machine, there is one line without
an organization, which only operators read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import LeaseId, MachineId

CLAIMANTS = """
LEFT JOIN LATERAL (
  SELECT c.organization_id, c.project_id, c.lease_id FROM claims c
  WHERE c.machine_id = {machine} AND (c.slot IS NULL OR c.ended_at IS NULL)
) claimant ON true
"""
"""SQL: the leases whose journals get a line about a machine. `{machine}` is the machine's id."""

INSERT = """
INSERT INTO journal (organization_id, project_id, lease_id, machine_id, at, actor_kind, actor, request_id, event,
                     state_before, state_after, why)
"""
ACTOR = ":actor_kind, :actor, :request_id"
"""SQL: the actor's parameters, which `actor_values` binds."""


def actor_values(actor: Actor) -> dict[str, str | None]:
    """Parameters of `ACTOR`."""
    return {"actor_kind": actor.kind.value, "actor": actor.name, "request_id": actor.request_id}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the journal as a lease's customer reads it."""

    number: int
    at: datetime
    actor_kind: ActorKind
    actor: str
    request_id: str | None
    event: str
    machine_id: MachineId | None
    state_before: str | None
    state_after: str | None
    why: str | None


_PAGE = text("""
SELECT number, at, actor_kind, actor, request_id, event, machine_id, state_before, state_after, why FROM journal
WHERE lease_id = :lease_id AND number > :after ORDER BY number LIMIT :limit
""")
_NOTE_LEASE = text(f"""
{INSERT}
SELECT l.organization_id, l.project_id, l.id, NULL, :now, {ACTOR}, :event, l.state, l.state, :why
FROM leases l WHERE l.id = :lease_id
""")
_NOTE_MACHINES = text(f"""
{INSERT}
SELECT claimant.organization_id, claimant.project_id, claimant.lease_id, m.id, :now, {ACTOR}, :event, NULL, NULL,
       :why
FROM machines m {CLAIMANTS.format(machine="m.id")} WHERE m.id = ANY(:machine_ids) ORDER BY m.id
""")
_NOTE_INTENDED = text(f"""
{INSERT}
SELECT claimant.organization_id, claimant.project_id, claimant.lease_id, m.id, :now, {ACTOR}, 'intended', NULL,
       m.state, m.native_type || ' at ' || m.account || ' in ' || m.region
FROM machines m {CLAIMANTS.format(machine="m.id")} WHERE m.id = ANY(:machine_ids) ORDER BY m.id
""")


async def page(connection: Connection, lease_id: LeaseId, *, after: int, limit: int) -> list[Line]:
    """A lease's lines after number `after`, oldest first."""
    return await read(connection, _PAGE, Line, lease_id=lease_id, after=after, limit=limit)


async def note_lease(
    connection: Connection, lease_id: LeaseId, *, event: str, why: str, actor: Actor, now: datetime
) -> None:
    """Add a line about a lease that does not change its state."""
    await write(
        connection, _NOTE_LEASE, lease_id=lease_id, event=event, why=why, now=now, **actor_values(actor)
    )


async def note_machine(
    connection: Connection, machine_id: MachineId, *, event: str, why: str, actor: Actor, now: datetime
) -> None:
    """Add a line about a machine that does not change its state."""
    values = {"machine_ids": [machine_id], "event": event, "why": why, "now": now}
    await write(connection, _NOTE_MACHINES, **values, **actor_values(actor))


async def note_intended(
    connection: Connection, machine_ids: Sequence[MachineId], *, actor: Actor, now: datetime
) -> None:
    """Add the first line of each machine. Call it after the claims are stored, so that their leases get the line."""
    if machine_ids:
        await write(connection, _NOTE_INTENDED, machine_ids=list(machine_ids), now=now, **actor_values(actor))
