"""Queries on leases. A state changes only through `move`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.db.proofs import record_of, record_of_machine
from control_plane.domain.ids import MachineId, LeaseId, OrganizationId
from control_plane.domain.machine import MachineState, Step
from control_plane.domain.lease import BILLED, END_REASONS, LIVE, EndReason, Lease, LeaseMove, LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.proof import ProofOutcome, Record, Tier
from control_plane.domain.status import Evidence
from control_plane.domain.request import CapacityRequest

_COLUMNS = """id, organization_id, name, sku, gpu_model, gpu_count, nano_per_gpu_hour, proof, regions, providers,
 price_nano_per_hour_max, authorized_keys, state, generation, attempts, end_reason, end_why, created_at, ready_at,
 billed_until, ended_at"""


def _lease(row: Any) -> Lease:
    ceiling = row.price_nano_per_hour_max
    return Lease(
        id=LeaseId(row.id),
        organization_id=OrganizationId(row.organization_id),
        name=row.name,
        request=CapacityRequest(
            sku=row.sku,
            regions=tuple(row.regions),
            providers=tuple(row.providers),
            price_nano_per_hour_max=None if ceiling is None else Nano(ceiling),
        ),
        gpu_model=row.gpu_model,
        gpu_count=row.gpu_count,
        nano_per_gpu_hour=Nano(row.nano_per_gpu_hour),
        proof=Tier(row.proof),
        authorized_keys=tuple(row.authorized_keys),
        state=LeaseState(row.state),
        generation=row.generation,
        attempts=row.attempts,
        end_reason=None if row.end_reason is None else EndReason(row.end_reason),
        end_why=row.end_why,
        created_at=row.created_at,
        ready_at=row.ready_at,
        billed_until=row.billed_until,
        ended_at=row.ended_at,
    )


# The lease, its first journal line, its hold and the organization's standing: one statement, one round trip.
_INSERT = text("""
WITH lease AS (
  INSERT INTO leases (id, organization_id, name, sku, gpu_model, gpu_count, nano_per_gpu_hour, proof,
                      regions, providers, price_nano_per_hour_max, authorized_keys, state, due_at, created_at)
  VALUES (:id, :organization_id, :name, :sku, :gpu_model, :gpu_count, :nano_per_gpu_hour, :proof, :regions, :providers,
          :price_nano_per_hour_max, :authorized_keys, 'placing', :now, :now)
  RETURNING id, organization_id
), noted AS (
  INSERT INTO journal (organization_id, lease_id, at, actor, event, state_after, why)
  SELECT organization_id, id, :now, :actor, 'admitted', 'placing', :why FROM lease
), held AS (
  INSERT INTO holds (lease_id, organization_id, amount_nano, placed_at)
  SELECT id, organization_id, :hold_nano, :now FROM lease
)
UPDATE standings SET gpus_held = gpus_held + :gpu_count, held_nano = held_nano + :hold_nano
WHERE organization_id = :organization_id
""")


async def insert(
    connection: AsyncConnection, lease: Lease, *, hold_nano: Nano, actor: str, why: str, now: datetime
) -> None:
    """Write an admitted lease with its hold. The caller holds the standing's lock."""
    await connection.execute(
        _INSERT,
        {
            "id": lease.id,
            "organization_id": lease.organization_id,
            "name": lease.name,
            "sku": lease.request.sku,
            "gpu_model": lease.gpu_model,
            "gpu_count": lease.gpu_count,
            "nano_per_gpu_hour": lease.nano_per_gpu_hour,
            "proof": lease.proof.value,
            "regions": list(lease.request.regions),
            "providers": list(lease.request.providers),
            "price_nano_per_hour_max": lease.request.price_nano_per_hour_max,
            "authorized_keys": list(lease.authorized_keys),
            "hold_nano": hold_nano,
            "actor": actor,
            "why": why,
            "now": now,
        },
    )


# One statement moves any number of leases, writes their journal lines and what follows from leaving a
# state: the billing times, the quota, and the hold of a lease that was never billed.
_MOVE = text("""
WITH wanted AS (
  SELECT * FROM jsonb_to_recordset(CAST(:moves AS jsonb)) AS m(
    id uuid, seen int, event text, before text, after text, why text, end_reason text, due_at timestamptz,
    billed_from timestamptz, billed_until timestamptz, attempt int, leaves_live boolean)
), moved AS (
  UPDATE leases l SET
    state = w.after, generation = l.generation + 1, due_at = coalesce(w.due_at, l.due_at),
    ready_at = coalesce(w.billed_from, l.ready_at), billed_until = coalesce(w.billed_until, l.billed_until),
    end_reason = coalesce(w.end_reason, l.end_reason),
    end_why = CASE WHEN w.end_reason IS NULL THEN l.end_why ELSE w.why END,
    ended_at = CASE WHEN w.after = 'ended' THEN CAST(:now AS timestamptz) ELSE l.ended_at END,
    attempts = l.attempts + w.attempt, claim_token = NULL, claimed_until = NULL
  FROM wanted w
  WHERE l.id = w.id AND l.state = w.before AND l.generation = w.seen
  RETURNING l.id, l.organization_id, l.gpu_count, l.ready_at, w.event, w.before, w.after, w.why, w.leaves_live
), noted AS (
  INSERT INTO journal (organization_id, lease_id, at, actor, event, state_before, state_after, why)
  SELECT organization_id, id, :now, :actor, event, before, after, why FROM moved
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
    connection: AsyncConnection, moves: Sequence[LeaseMove], *, actor: str, now: datetime
) -> frozenset[LeaseId]:
    """Apply the moves of which nobody moved the lease since; answers the leases that did move.

    Leaving READY stamps `billed_until`; leaving the live states frees the quota, and the hold too
    when the lease was never ready (a billed lease keeps its hold until its last charge is posted).
    """
    if not moves:
        return frozenset()
    document = json.dumps([_move_row(one, now) for one in moves])
    moved = await rows(connection, _MOVE, moves=document, actor=actor, now=now)

    by_tenant: dict[UUID, tuple[int, list[UUID]]] = {}
    for row in moved:
        if row.leaves_live:
            gpus, unused = by_tenant.get(row.organization_id, (0, []))
            by_tenant[row.organization_id] = (
                gpus + row.gpu_count,
                unused if row.ready_at is not None else [*unused, row.id],
            )
    # In one order everywhere, so that two batches cannot wait for each other's standings.
    for organization_id, (gpus, unused) in sorted(by_tenant.items()):
        await connection.execute(
            _LEAVE_LIVE,
            {"unused": unused, "gpu_count": gpus, "organization_id": organization_id, "now": now},
        )
    return frozenset(LeaseId(row.id) for row in moved)


def _move_row(move: LeaseMove, now: datetime) -> dict[str, Any]:
    before, after = move.moved.before, move.moved.after
    leaves_bill = before in BILLED and after not in BILLED
    return {
        "id": str(move.id),
        "seen": move.seen,
        "event": move.moved.event,
        "before": before,
        "after": after,
        "why": move.why,
        "end_reason": END_REASONS.get(move.moved.event) if after is LeaseState.ENDING else None,
        "due_at": now.isoformat() if after is LeaseState.PLACING else None,
        "billed_from": now.isoformat() if after in BILLED else None,
        "billed_until": (move.billed_until or now).isoformat() if leaves_bill else None,
        "attempt": 1 if after is LeaseState.STARTING else 0,
        "leaves_live": before in LIVE and after not in LIVE,
    }


_READ = text(f"SELECT {_COLUMNS} FROM leases WHERE id = ANY(:ids)")
_LOCK = text(f"SELECT {_COLUMNS} FROM leases WHERE id = ANY(:ids) ORDER BY id FOR UPDATE")


async def read(connection: AsyncConnection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, Lease]:
    found = await rows(connection, _READ, ids=list(lease_ids))
    return {lease.id: lease for lease in map(_lease, found)}


async def lock(connection: AsyncConnection, lease_ids: Sequence[LeaseId]) -> dict[LeaseId, Lease]:
    """Lock leases before their machines are touched, in id order: lease, then machine, then standing."""
    found = await rows(connection, _LOCK, ids=sorted(set(lease_ids)))
    return {lease.id: lease for lease in map(_lease, found)}


# A lease as a customer reads it: with its latest attempt, in one round trip.
_OVERVIEW = f"""
SELECT {", ".join("l." + column.strip() for column in _COLUMNS.split(","))},
  i.id AS machine_id, i.provider, i.region, i.state AS machine_state, i.step, i.address, i.ssh_port, i.host_key,
  CASE WHEN i.sighted_at IS NULL OR i.missed_since IS NOT NULL OR i.state = 'gone' THEN i.sighted_at
       ELSE greatest(i.sighted_at, a.listing_asked_at) END AS sighted_at,
  p.address AS mesh_address,
  v.id AS proof_id, v.outcome AS proof_outcome, v.at AS proof_at,
  r.passes, r.first_passed_at, r.last_passed_at, r.attested, r.failed, r.unanswered, r.last_at
FROM leases l
LEFT JOIN LATERAL (SELECT * FROM machines WHERE lease_id = l.id ORDER BY created_at DESC, id DESC LIMIT 1) i ON true
LEFT JOIN provider_accounts a ON a.name = i.account
LEFT JOIN peers p ON p.machine_id = i.id
LEFT JOIN LATERAL (SELECT id, outcome, at FROM proofs WHERE l.proof <> 'listed' AND machine_id = i.id
  ORDER BY at DESC, id DESC LIMIT 1) v ON true
LEFT JOIN LATERAL ({record_of_machine("i.id AND l.proof <> 'listed'")}) r ON true
"""
_SHOW = text(_OVERVIEW + " WHERE l.organization_id = :organization_id AND l.id = :id")
_PAGE = text(
    _OVERVIEW
    + """
WHERE l.organization_id = :organization_id
  AND (CAST(:before_at AS timestamptz) IS NULL OR (l.created_at, l.id) < (:before_at, CAST(:before_id AS uuid)))
  AND (CAST(:states AS text[]) IS NULL OR l.state = ANY(:states))
ORDER BY l.created_at DESC, l.id DESC LIMIT :limit
"""
)


@dataclass(frozen=True, slots=True)
class LatestProof:
    id: UUID
    outcome: ProofOutcome
    at: datetime
    record: Record
    """What this and all proofs of the machine before add up to."""


@dataclass(frozen=True, slots=True)
class Overview:
    lease: Lease
    evidence: Evidence | None
    """Of the latest attempt; None before the first."""
    proof: LatestProof | None = None
    """Of the latest attempt's machine; None before its first challenge."""


def _overview(row: Any) -> Overview:
    if row.machine_id is None:
        return Overview(_lease(row), None)
    evidence = Evidence(
        machine_id=MachineId(row.machine_id),
        provider=row.provider,
        region=row.region,
        state=MachineState(row.machine_state),
        step=None if row.step is None else Step(row.step),
        sighted_at=row.sighted_at,
        address=row.address,
        ssh_port=row.ssh_port,
        host_key=row.host_key,
        mesh_address=row.mesh_address,
    )
    return Overview(_lease(row), evidence, _latest_proof(row))


def _latest_proof(row: Any) -> LatestProof | None:
    if row.proof_id is None:
        return None
    known = Record() if row.passes is None else record_of(row)
    return LatestProof(row.proof_id, ProofOutcome(row.proof_outcome), row.proof_at, known)


async def show(
    connection: AsyncConnection, organization_id: OrganizationId, lease_id: LeaseId
) -> Overview | None:
    found = await rows(connection, _SHOW, organization_id=organization_id, id=lease_id)
    return _overview(found[0]) if found else None


async def page(
    connection: AsyncConnection,
    organization_id: OrganizationId,
    *,
    before: tuple[datetime, UUID] | None,
    states: Sequence[LeaseState] | None,
    limit: int,
) -> list[Overview]:
    """Newest first; `before` is creation time and id of the last lease of the page before."""
    found = await rows(
        connection,
        _PAGE,
        organization_id=organization_id,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        states=[state.value for state in states] if states is not None else None,
        limit=limit,
    )
    return [_overview(row) for row in found]


_DUE_FOR_PLACING = text(f"""
SELECT {_COLUMNS} FROM leases WHERE state = 'placing' AND due_at <= :now
ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED
""")
_POSTPONE = text("UPDATE leases SET due_at = :due_at WHERE id = ANY(:ids)")


async def take_placing(connection: AsyncConnection, *, now: datetime, limit: int) -> list[Lease]:
    """Leases that wait for a machine, locked for this transaction; those in other hands are skipped."""
    return [_lease(row) for row in await rows(connection, _DUE_FOR_PLACING, now=now, limit=limit)]


async def postpone(connection: AsyncConnection, lease_ids: Sequence[LeaseId], *, due_at: datetime) -> None:
    await connection.execute(_POSTPONE, {"ids": list(lease_ids), "due_at": due_at})


_FINISHED = text(f"""
SELECT {_COLUMNS} FROM leases l WHERE state = 'ending'
  AND NOT EXISTS (SELECT FROM machines i WHERE i.lease_id = l.id AND i.state <> 'gone')
ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
""")


async def take_finished(connection: AsyncConnection, *, limit: int) -> list[Lease]:
    """Ending leases whose every machine is confirmed gone."""
    return [_lease(row) for row in await rows(connection, _FINISHED, limit=limit)]


_PLACEMENT = text("""
INSERT INTO placements (lease_id, number, organization_id, decided_at, chosen, ranking)
SELECT p.lease_id, coalesce((SELECT max(number) FROM placements o WHERE o.lease_id = p.lease_id), 0) + 1,
       p.organization_id, :now, p.chosen, p.ranking
FROM jsonb_to_recordset(CAST(:placements AS jsonb))
     AS p(lease_id uuid, organization_id uuid, chosen text, ranking jsonb)
""")
_PLACEMENTS = text(
    "SELECT number, decided_at, chosen, ranking FROM placements WHERE lease_id = :id ORDER BY number"
)


async def insert_placements(
    connection: AsyncConnection, placements: Sequence[dict[str, Any]], *, now: datetime
) -> None:
    """Store decisions: `lease_id`, `organization_id`, `chosen` (an offer key or None), `ranking` (JSON)."""
    if placements:
        await connection.execute(_PLACEMENT, {"placements": json.dumps(placements), "now": now})


async def placements(connection: AsyncConnection, lease_id: LeaseId) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in await rows(connection, _PLACEMENTS, id=lease_id)]  # noqa: SLF001
