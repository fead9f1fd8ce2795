"""Queries on leases. A state changes only through `move`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text

from control_plane.db.connection import Connection
from control_plane.db.journal import ACTOR, INSERT, actor_values
from control_plane.db.machines import SIGHTED_AT
from control_plane.db.rows import Recordset, convert, read, write
from control_plane.domain.actor import Actor
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.lease import (
    BILLED,
    END_REASONS,
    LIVE,
    TERMINAL,
    EndReason,
    Lease,
    LeaseEvent,
    LeaseMove,
    LeaseState,
)
from control_plane.domain.machine import MachineState
from control_plane.domain.money import Nano
from control_plane.domain.progress import Step
from control_plane.domain.proof import ProofOutcome, Record, Tier
from control_plane.domain.status import Evidence

_COLUMNS = tuple(field.name for field in fields(Lease) if field.name != "project")
_PROJECT = "(SELECT name FROM projects WHERE id = l.project_id) AS project"
"""SQL: the name of a lease's project. It is not a join, so that `FOR UPDATE` locks the lease alone."""
_LEASE = f"{', '.join(f'l.{column}' for column in _COLUMNS)}, {_PROJECT}"
_SELECT = f"SELECT {_LEASE} FROM leases l"

_LATER = frozenset(
    {"generation", "attempts", "end_reason", "end_why", "ready_at", "billed_until", "ended_at"}
)
"""Columns that a new lease gets from the table's defaults."""
_GIVEN = tuple(column for column in _COLUMNS if column != "state" and column not in _LATER)
# Stores the lease, its first journal line, its hold and the organization's standing in one round trip.
_INSERT = text(f"""
WITH lease AS (
  INSERT INTO leases ({", ".join(_GIVEN)}, state, due_at)
  VALUES ({", ".join(f":{column}" for column in _GIVEN)}, '{LeaseState.PLACING}', :created_at)
  RETURNING id, organization_id, project_id, state
), noted AS (
  {INSERT}
  SELECT organization_id, project_id, id, NULL, :created_at, {ACTOR}, 'admitted', NULL, state, :why FROM lease
), held AS (
  INSERT INTO holds (lease_id, organization_id, amount_nano, placed_at)
  SELECT id, organization_id, :hold_nano, :created_at FROM lease
)
UPDATE standings SET gpus_held = gpus_held + :gpu_count, held_nano = held_nano + :hold_nano
WHERE organization_id = :organization_id
""")


async def insert(connection: Connection, lease: Lease, *, hold_nano: Nano, actor: Actor, why: str) -> None:
    """Store an admitted lease with its hold. The caller holds the standing's lock."""
    given: dict[str, object] = {column: getattr(lease, column) for column in _GIVEN}
    for column in ("regions", "providers", "authorized_keys"):
        given[column] = list(getattr(lease, column))
    await write(connection, _INSERT, **given, hold_nano=hold_nano, why=why, **actor_values(actor))


@dataclass(frozen=True, slots=True)
class _Moving:
    """A move, with the columns that change with the state."""

    id: LeaseId
    seen: int
    event: LeaseEvent
    before: LeaseState
    after: LeaseState
    why: str | None
    end_reason: EndReason | None
    due_at: datetime | None
    ready_at: datetime | None
    billed_until: datetime | None
    ended_at: datetime | None
    attempt: int
    leaves_live: bool


@dataclass(frozen=True, slots=True)
class _Left:
    """A lease that moved."""

    id: LeaseId
    organization_id: OrganizationId
    gpu_count: int
    ready_at: datetime | None
    leaves_live: bool


# One statement moves any number of leases and writes their journal lines.
_MOVING = Recordset(_Moving, "moving")
_MOVE = text(f"""
WITH wanted AS (SELECT * FROM {_MOVING}),
moved AS (
  UPDATE leases l SET
    state = w.after, generation = l.generation + 1, due_at = coalesce(w.due_at, l.due_at),
    ready_at = coalesce(w.ready_at, l.ready_at), billed_until = coalesce(w.billed_until, l.billed_until),
    end_reason = coalesce(w.end_reason, l.end_reason),
    end_why = CASE WHEN w.end_reason IS NULL THEN l.end_why ELSE w.why END,
    ended_at = coalesce(w.ended_at, l.ended_at), attempts = l.attempts + w.attempt
  FROM wanted w
  WHERE l.id = w.id AND l.state = w.before AND l.generation = w.seen
  RETURNING l.id, l.organization_id, l.project_id, l.gpu_count, l.ready_at, w.event, w.before, w.after, w.why,
            w.leaves_live
), noted AS (
  {INSERT}
  SELECT organization_id, project_id, id, NULL, :now, {ACTOR}, event, before, after, why FROM moved
)
SELECT id, organization_id, gpu_count, ready_at, leaves_live FROM moved ORDER BY id
""")
_LEAVE_LIVE = text("""
WITH unused AS (
  SELECT lease_id, amount_nano FROM holds WHERE lease_id = ANY(:unused) AND released_at IS NULL FOR UPDATE
), released AS (
  UPDATE holds SET amount_nano = 0, released_at = :now FROM unused WHERE holds.lease_id = unused.lease_id
)
UPDATE standings SET gpus_held = gpus_held - :gpu_count,
                     held_nano = held_nano - (SELECT coalesce(sum(amount_nano), 0) FROM unused)
WHERE organization_id = :organization_id
""")


async def move(
    connection: Connection, moves: Sequence[LeaseMove], *, actor: Actor, now: datetime
) -> frozenset[LeaseId]:
    """Apply the moves whose leases have not moved meanwhile; returns the leases that moved.

    Leaving READY sets `billed_until`. Leaving the live states frees the quota, and also the hold when the lease was
    never ready: a billed lease keeps its hold until its last charge is posted.
    """
    if not moves:
        return frozenset()
    document = _MOVING.document([_moving(each, now) for each in moves])
    moved = await read(connection, _MOVE, _Left, moving=document, now=now, **actor_values(actor))
    left = [lease for lease in moved if lease.leaves_live]
    # Always in one order, so that two batches cannot wait for each other's standings.
    for organization_id in sorted({lease.organization_id for lease in left}):
        of_tenant = [lease for lease in left if lease.organization_id == organization_id]
        await write(
            connection,
            _LEAVE_LIVE,
            organization_id=organization_id,
            unused=[lease.id for lease in of_tenant if lease.ready_at is None],
            gpu_count=sum(lease.gpu_count for lease in of_tenant),
            now=now,
        )
    return frozenset(lease.id for lease in moved)


def _moving(move: LeaseMove, now: datetime) -> _Moving:
    before, after = move.moved.before, move.moved.after
    leaves_bill = before in BILLED and after not in BILLED
    return _Moving(
        id=move.id,
        seen=move.seen,
        event=move.moved.event,
        before=before,
        after=after,
        why=move.why,
        end_reason=END_REASONS.get(move.moved.event) if after is LeaseState.ENDING else None,
        due_at=now if after is LeaseState.PLACING else None,
        ready_at=now if after in BILLED else None,
        billed_until=(move.billed_until or now) if leaves_bill else None,
        ended_at=now if after in TERMINAL else None,
        attempt=1 if after is LeaseState.STARTING else 0,
        leaves_live=before in LIVE and after not in LIVE,
    )


_LOCK = text(f"{_SELECT} WHERE id = ANY(:ids) ORDER BY id FOR UPDATE")


async def lock(connection: Connection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, Lease]:
    """Lock leases, in id order. Locks are always taken in the order lease, claim, machine, standing, hold."""
    found = await read(connection, _LOCK, Lease, ids=sorted(set(lease_ids)))
    return {lease.id: lease for lease in found}


# A lease as a customer reads it, in one round trip: with the claim of its latest attempt (every attempt has one), the
# machine, the machine's place in the private network, and its latest GPU proof.
_OVERVIEW = f"""
SELECT {_LEASE},
  m.id AS machine_id, m.provider, m.region, m.state AS machine_state, coalesce(c.step, m.step) AS step,
  {SIGHTED_AT} AS sighted_at, m.address, m.ssh_port, m.host_key, p.address AS mesh_address,
  m.passes, m.first_passed_at, m.last_passed_at, m.attested, m.failed, m.unanswered, m.last_challenged_at AS last_at,
  v.id AS proof_id, v.outcome AS proof_outcome, v.at AS proof_at
FROM leases l
LEFT JOIN claims c ON c.lease_id = l.id AND c.attempt = l.attempts
LEFT JOIN machines m ON m.id = c.machine_id
LEFT JOIN provider_accounts a ON a.name = m.account
LEFT JOIN peers p ON p.claim_id = c.id
LEFT JOIN LATERAL (SELECT id, outcome, at FROM proofs WHERE m.proof <> '{Tier.LISTED}' AND machine_id = m.id
  ORDER BY at DESC LIMIT 1) v ON true
"""
_SHOW = text(_OVERVIEW + " WHERE l.organization_id = :organization_id AND l.id = :id")
_PAGE = text(
    _OVERVIEW
    + """
WHERE l.organization_id = :organization_id
  AND (CAST(:before_at AS timestamptz) IS NULL OR (l.created_at, l.id) < (:before_at, CAST(:before_id AS uuid)))
  AND (CAST(:states AS text[]) IS NULL OR l.state = ANY(:states))
  AND (CAST(:project_id AS uuid) IS NULL OR l.project_id = :project_id)
ORDER BY l.created_at DESC, l.id DESC LIMIT :limit
"""
)


@dataclass(frozen=True, slots=True)
class LatestProof:
    id: UUID
    outcome: ProofOutcome
    at: datetime


@dataclass(frozen=True, slots=True)
class Overview:
    lease: Lease
    evidence: Evidence | None = None
    """What is known about the latest attempt's machine; None before the first attempt."""
    record: Record | None = None
    """The summary of all GPU proofs of that machine."""
    proof: LatestProof | None = None
    """Its latest GPU proof; None before its first challenge."""


@dataclass(frozen=True, slots=True)
class _Claimed:
    """The other columns of a lease's row, once it has had an attempt."""

    machine_id: MachineId
    provider: str
    region: str
    machine_state: MachineState
    step: Step
    sighted_at: datetime | None
    address: str | None
    ssh_port: int
    host_key: str | None
    mesh_address: str | None
    proof_id: UUID | None
    proof_outcome: ProofOutcome | None
    proof_at: datetime | None


async def _overviews(connection: Connection, statement: TextClause, **values: object) -> list[Overview]:
    return [_overview(row) for row in (await connection.execute(statement, values)).all()]


def _overview(row: Any) -> Overview:
    lease = convert(row, Lease)
    if row.machine_id is None:
        return Overview(lease)
    claimed = convert(row, _Claimed)
    record = convert(row, Record)
    return Overview(lease, _evidence(claimed), record, _latest_proof(claimed))


def _evidence(claimed: _Claimed) -> Evidence:
    return Evidence(
        machine_id=claimed.machine_id,
        provider=claimed.provider,
        region=claimed.region,
        state=claimed.machine_state,
        step=claimed.step,
        sighted_at=claimed.sighted_at,
        address=claimed.address,
        ssh_port=claimed.ssh_port,
        host_key=claimed.host_key,
        mesh_address=claimed.mesh_address,
    )


def _latest_proof(claimed: _Claimed) -> LatestProof | None:
    if claimed.proof_id is None or claimed.proof_outcome is None or claimed.proof_at is None:
        return None
    return LatestProof(claimed.proof_id, claimed.proof_outcome, claimed.proof_at)


async def show(connection: Connection, organization_id: OrganizationId, lease_id: LeaseId) -> Overview | None:
    found = await _overviews(connection, _SHOW, organization_id=organization_id, id=lease_id)
    return found[0] if found else None


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    before: tuple[datetime, UUID] | None,
    states: Sequence[LeaseState] | None,
    project_id: ProjectId | None = None,
    limit: int,
) -> list[Overview]:
    """An organization's leases, newest first; `before` is creation time and id of the previous page's last lease."""
    before_at, before_id = before or (None, None)
    return await _overviews(
        connection,
        _PAGE,
        organization_id=organization_id,
        before_at=before_at,
        before_id=before_id,
        states=None if states is None else list(states),
        project_id=project_id,
        limit=limit,
    )


_TAKE_PLACING = text(f"""
{_SELECT} WHERE state = '{LeaseState.PLACING}' AND due_at <= :now
ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED
""")
_POSTPONE = text("UPDATE leases SET due_at = :due_at WHERE id = ANY(:ids)")
# A lease on a slot ends while its node stays; a lease on a whole machine ends when the machine is gone.
_TAKE_FINISHED = text(f"""
{_SELECT} WHERE state = '{LeaseState.ENDING}' AND NOT EXISTS (
  SELECT FROM claims c JOIN machines m ON m.id = c.machine_id
  WHERE c.lease_id = l.id AND (c.released_at IS NULL OR (c.slot IS NULL AND m.state <> '{MachineState.GONE}')))
ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
""")


async def take_placing(connection: Connection, *, now: datetime, limit: int) -> list[Lease]:
    """Leases that wait for a machine, locked for this transaction. Leases locked by others are skipped."""
    return await read(connection, _TAKE_PLACING, Lease, now=now, limit=limit)


async def postpone(connection: Connection, lease_ids: Sequence[LeaseId], *, due_at: datetime) -> None:
    """Look again at `due_at` at leases that wait for a machine."""
    if lease_ids:
        await write(connection, _POSTPONE, ids=list(lease_ids), due_at=due_at)


async def take_finished(connection: Connection, *, limit: int) -> list[Lease]:
    """Ending leases whose claims are released and whose machines are confirmed gone, locked for this transaction."""
    return await read(connection, _TAKE_FINISHED, Lease, limit=limit)
