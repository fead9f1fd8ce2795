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
from control_plane.domain.journal import Note
from control_plane.domain.position import Position, behind, unseen

CLAIMANTS = """
LEFT JOIN LATERAL (
  SELECT c.organization_id, c.project_id, c.lease_id FROM claims c
  WHERE c.machine_id = {machine} AND (c.slot IS NULL OR c.ended_at IS NULL)
) claimant ON true
"""
"""SQL: the leases whose journals get a line about a machine. `{machine}` is the machine's id."""

OWNER = """
LEFT JOIN LATERAL (
  SELECT c.organization_id, c.project_id, c.lease_id FROM claims c
  WHERE c.machine_id = {machine} AND c.slot IS NULL ORDER BY c.claimed_at DESC, c.id DESC LIMIT 1
) owner ON true
"""
"""SQL: the lease that has or last had a whole machine; a node belongs to no lease. `{machine}` is the machine's id."""

INSERT = """
INSERT INTO journal (organization_id, project_id, lease_id, machine_id, at, actor_kind, actor, request_id, event,
                     state_before, state_after, why)
"""
ACTOR = ":actor_kind, :actor, :request_id"
"""SQL: the actor's parameters, which `actor_values` binds."""


def insert_for(changed: str, event: str, why: str = ":why") -> str:
    """SQL: adds a line about each machine that the part `changed` of the statement returns, with its `id` and `state`.

    `event` and `why` are SQL as well. `:now` and the parameters of `ACTOR` have to be bound.
    """
    return f"""{INSERT}
SELECT claimant.organization_id, claimant.project_id, claimant.lease_id, {changed}.id, :now, {ACTOR}, {event},
       {changed}.state, {changed}.state, {why}
FROM {changed} {CLAIMANTS.format(machine=f"{changed}.id")} ORDER BY {changed}.id
"""


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
    transaction: int
    """The transaction that wrote it."""
    settled: int
    """No line after this one, visible or still uncommitted, is of a transaction below this."""


@dataclass(frozen=True, slots=True)
class _Read(Line):
    foreign: bool
    """Whether the reader's position comes from another database, or from before this one was restored."""


# `settled` and the rows come from the same snapshot. Transactions at or above its xmin may still commit a line.
_PAGE = text("""
SELECT number, at, actor_kind, actor, request_id, event, machine_id, state_before, state_after, why, transaction,
  least(CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint),
        min(transaction) OVER (ORDER BY number ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)) AS settled,
  :horizon > CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) AS foreign
FROM journal
WHERE lease_id = :lease_id AND (transaction >= :horizon
  OR :horizon > CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint))
ORDER BY number LIMIT :limit
""")
_LATEST = text("""
SELECT number, at, actor_kind, actor, request_id, event, machine_id, state_before, state_after, why, transaction,
  transaction AS settled
FROM journal WHERE lease_id = :lease_id ORDER BY number DESC LIMIT :limit
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
SELECT claimant.organization_id, claimant.project_id, claimant.lease_id, m.id, :now, {ACTOR}, '{Note.INTENDED}', NULL,
       m.state, m.native_type || ' at ' || m.account || ' in ' || m.region
FROM machines m {CLAIMANTS.format(machine="m.id")} WHERE m.id = ANY(:machine_ids) ORDER BY m.id
""")


@dataclass(frozen=True, slots=True)
class Page:
    """Lines that one statement read, in the order of their numbers, with some that the reader has already."""

    lines: Sequence[Line]
    foreign: bool
    """The position comes from another database, or from before this one was restored: the page is the first one."""
    more: bool
    """Whether the page is full, so that more lines may follow."""

    def unseen(self, position: Position) -> list[tuple[Line, Position]]:
        """The lines that a reader lacks, each with the position once it has the line."""
        return unseen(self._start(position), self.lines)

    def behind(self, position: Position) -> Position:
        """The position of the reader once it has the whole page."""
        return behind(self._start(position), self.lines)

    def _start(self, position: Position) -> Position:
        return Position() if self.foreign else position

    def blocks(self, position: Position) -> bool:
        """Whether a reader at this position, behind the page, would only get the page again.

        So it is while a transaction stays open for so long that the reader can remember no more lines.
        """
        return self.more and all(line.number in position.seen for line in self.lines)


async def page(connection: Connection, lease_id: LeaseId, *, position: Position, limit: int) -> Page:
    """The next lines of a lease behind a position: at least `limit` of them that a reader there lacks, if there are."""
    limit = min(limit, position.room) + len(position.seen)
    found = await read(connection, _PAGE, _Read, lease_id=lease_id, horizon=position.horizon, limit=limit)
    return Page(found, foreign=bool(found) and found[0].foreign, more=len(found) >= limit)


async def latest(connection: Connection, lease_id: LeaseId, *, limit: int) -> list[Line]:
    """The last lines of a lease, oldest first. They are no page: nothing is read behind them."""
    found = await read(connection, _LATEST, Line, lease_id=lease_id, limit=limit)
    return found[::-1]


async def note_lease(
    connection: Connection, lease_id: LeaseId, *, event: Note, why: str, actor: Actor, now: datetime
) -> None:
    """Add a line about a lease that does not change its state."""
    await write(
        connection, _NOTE_LEASE, lease_id=lease_id, event=event, why=why, now=now, **actor_values(actor)
    )


async def note_machine(
    connection: Connection, machine_id: MachineId, *, event: Note, why: str, actor: Actor, now: datetime
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
