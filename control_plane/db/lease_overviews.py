"""Queries on leases as customers read them: with their latest machine, its evidence and its proof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import TextClause, text

from control_plane.db import powers
from control_plane.db.agents import EVIDENCE
from control_plane.db.connection import Connection
from control_plane.db.leases import COLUMNS
from control_plane.db.machines import SIGHTED_AT
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import convert, document
from control_plane.domain.access import Reach
from control_plane.domain.agent import AgentEvidence
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.lease import (
    Lease,
    LeaseState,
)
from control_plane.domain.machine import MachineState
from control_plane.domain.node import JoinStep
from control_plane.domain.power import Power
from control_plane.domain.power_action import PowerAction
from control_plane.domain.preemption import PreemptionState
from control_plane.domain.progress import Step
from control_plane.domain.proof import ProofOutcome, Record, Tier
from control_plane.domain.status import Evidence
from control_plane.domain.waiting import WaitsFor

# A lease as a customer reads it, in one round trip: with the claim of its latest attempt (every attempt has one), the
# machine, the machine's place in the private network, and its latest GPU proof.
_JOIN_STEPS = ", ".join(f"'{step}'" for step in JoinStep)
_OVERVIEW = f"""
SELECT {COLUMNS},
  CASE WHEN l.node_pool_id IS NOT NULL THEN (
    SELECT s.step FROM nodes n JOIN node_steps s ON s.node_id = n.id
    WHERE n.claim_id = c.id AND s.step IN ({_JOIN_STEPS})
    ORDER BY array_position(ARRAY[{_JOIN_STEPS}], s.step) DESC LIMIT 1) END AS join_step,
  m.id AS machine_id, m.provider, m.region, m.state AS machine_state, coalesce(c.step, m.step) AS step,
  {SIGHTED_AT} AS sighted_at, m.down_since, m.back_since, m.provider_state, m.suspect_since, m.address, m.ssh_port,
  m.host_key,
  p.address AS mesh_address, c.waits_for, c.waits_since,
  m.passes, m.first_passed_at, m.last_passed_at, m.attested, m.failed, m.unanswered, m.last_challenged_at AS last_at,
  v.id AS proof_id, v.outcome AS proof_outcome, v.at AS proof_at, {EVIDENCE.format(claim_id="c.id")} AS agent,
  {powers.OF_CLAIM.format(claim_id="c.id")} AS power, m.power AS power_offered,
  (SELECT y.interrupt_at FROM preemptions y WHERE y.lease_id = l.id AND y.state = '{PreemptionState.NOTIFIED}')
    AS taken_back_at
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
    + f"""
WHERE l.organization_id = :organization_id AND {within("l")}
  AND (CAST(:before_at AS timestamptz) IS NULL OR (l.created_at, l.id) < (:before_at, CAST(:before_id AS uuid)))
  AND (CAST(:states AS text[]) IS NULL OR l.state = ANY(:states))
  AND (CAST(:project_id AS uuid) IS NULL OR l.project_id = :project_id)
  AND (CAST(:labels AS jsonb) IS NULL OR l.labels @> CAST(:labels AS jsonb))
  AND (CAST(:waiting AS boolean) IS NULL OR (l.waiting_since IS NOT NULL) = :waiting)
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
    agent: AgentEvidence | None = None
    """What its agent reported last; None before there is one."""
    power: Power | None = None
    """The power of that machine; None while it is on and nobody asked for anything else."""
    power_offered: tuple[PowerAction, ...] = ()
    """What its provider can do."""
    taken_back_at: datetime | None = None
    """When we take its machine back, as its customer was told; None unless that is announced."""


@dataclass(frozen=True, slots=True)
class _Claimed:
    """The other columns of a lease's row, once it has had an attempt."""

    machine_id: MachineId
    provider: str
    region: str
    machine_state: MachineState
    step: Step
    join_step: JoinStep | None
    sighted_at: datetime | None
    down_since: datetime | None
    back_since: datetime | None
    provider_state: str | None
    suspect_since: datetime | None
    address: str | None
    ssh_port: int
    host_key: str | None
    mesh_address: str | None
    waits_for: WaitsFor | None
    waits_since: datetime | None
    proof_id: UUID | None
    proof_outcome: ProofOutcome | None
    proof_at: datetime | None
    agent: AgentEvidence | None
    power: Power | None
    power_offered: tuple[PowerAction, ...] | None
    taken_back_at: datetime | None


async def _overviews(connection: Connection, statement: TextClause, **values: object) -> list[Overview]:
    return [_overview(row) for row in (await connection.execute(statement, values)).all()]


@dataclass(frozen=True, slots=True)
class _Latest:
    """The machine of a lease's latest attempt."""

    machine_id: MachineId | None
    """None before the first attempt."""


def _overview(row: object) -> Overview:
    lease = convert(row, Lease)
    if convert(row, _Latest).machine_id is None:
        return Overview(lease)
    claimed = convert(row, _Claimed)
    record = convert(row, Record)
    return Overview(
        lease,
        _evidence(claimed),
        record,
        _latest_proof(claimed),
        claimed.agent,
        claimed.power,
        claimed.power_offered or (),
        claimed.taken_back_at,
    )


def _evidence(claimed: _Claimed) -> Evidence:
    return Evidence(
        machine_id=claimed.machine_id,
        provider=claimed.provider,
        region=claimed.region,
        state=claimed.machine_state,
        step=claimed.step,
        join_step=claimed.join_step,
        sighted_at=claimed.sighted_at,
        down_since=claimed.down_since,
        back_since=claimed.back_since,
        provider_state=claimed.provider_state,
        suspect_since=claimed.suspect_since,
        address=claimed.address,
        ssh_port=claimed.ssh_port,
        host_key=claimed.host_key,
        mesh_address=claimed.mesh_address,
        waits_for=claimed.waits_for,
        waits_since=claimed.waits_since,
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
    reach: Reach,
    *,
    before: tuple[datetime, UUID] | None,
    states: Sequence[LeaseState] | None,
    project_id: ProjectId | None = None,
    labels: Mapping[str, str] | None = None,
    waiting: bool | None = None,
    limit: int,
) -> list[Overview]:
    """An organization's leases within reach, newest first; `before` is creation time and id of the last one read.

    With `labels`, only leases that have all of them; with `waiting`, only those that wait for stock, or only others.
    """
    before_at, before_id = before or (None, None)
    return await _overviews(
        connection,
        _PAGE,
        organization_id=organization_id,
        **reach_values(reach),
        before_at=before_at,
        before_id=before_id,
        states=None if states is None else list(states),
        project_id=project_id,
        labels=document(labels) if labels else None,
        waiting=waiting,
        limit=limit,
    )
