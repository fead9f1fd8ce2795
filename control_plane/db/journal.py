"""The journal: reading it, and lines that move no state. Moves write their own lines: see `move()` of a noun.

A line about a lease belongs to its organization. A line about a machine goes to every lease that has a claim
on it, and to the last one of a whole machine after its claim ended; while nobody has claimed the machine,
there is one line without an organization, which only operators read.
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
"""SQL: whose journal a line about a machine goes to. `{machine}` is the machine's id."""

INSERT = """
INSERT INTO journal (organization_id, project_id, lease_id, machine_id, at, actor_kind, actor, request_id, event,
                     state_before, state_after, why)
"""
ACTOR = ":actor_kind, :actor, :request_id"
"""SQL: who did it, as `actor_values` binds it."""


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
    """Lines of a lease after number `after`, oldest first."""
    return await read(connection, _PAGE, Line, lease_id=lease_id, after=after, limit=limit)


async def note_lease(
    connection: Connection, lease_id: LeaseId, *, event: str, why: str, actor: Actor, now: datetime
) -> None:
    """A line about a lease that leaves its state as it is."""
    await write(
        connection, _NOTE_LEASE, lease_id=lease_id, event=event, why=why, now=now, **actor_values(actor)
    )


async def note_machine(
    connection: Connection, machine_id: MachineId, *, event: str, why: str, actor: Actor, now: datetime
) -> None:
    """A line about a machine that leaves its state as it is."""
    values = {"machine_ids": [machine_id], "event": event, "why": why, "now": now}
    await write(connection, _NOTE_MACHINES, **values, **actor_values(actor))


async def note_intended(
    connection: Connection, machine_ids: Sequence[MachineId], *, actor: Actor, now: datetime
) -> None:
    """The first line of each machine. Comes after their claims, so that it reaches those who claim them."""
    if machine_ids:
        await write(connection, _NOTE_INTENDED, machine_ids=list(machine_ids), now=now, **actor_values(actor))
