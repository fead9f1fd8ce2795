"""Queries on the facts that the clocks of promises run on."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.db.tables.marks import among
from control_plane.domain.health import FaultCode, Verdict
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.lease import EndReason, LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.outage import CONSEQUENCES
from control_plane.domain.proof import Occasion, OwnCode, ProofOutcome
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import (
    BROKEN,
    Facts,
    HealthChange,
    Maintenance,
    Used,
    end_of,
    failures_of,
    in_turn,
)
from control_plane.domain.sla_evidence import FROM_OUTSIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisedLease:
    """A lease with promises, as far as its clocks are concerned."""

    id: LeaseId
    organization_id: OrganizationId
    project_id: ProjectId
    name: str
    is_node: bool
    """Whether it is a node of a node pool."""
    sla: SlaTier
    sla_version: int
    created_at: datetime
    ready_at: datetime | None
    release_at: datetime | None
    billed_until: datetime | None
    end_reason: EndReason | None
    switched_at: tuple[datetime, ...]
    paused_at: tuple[datetime, ...]
    unattributed_at: tuple[datetime, ...]
    held_at: tuple[datetime, ...]
    ending_at: datetime | None
    """When it ended; its machines may live on."""
    failed_since: datetime | None
    """Since when its provider lists its machine as failed, or did when the lease ended; None when it does not."""
    failed_until: datetime | None
    """Since when lists have shown that machine as running again, if they have to for a while before it counts as up."""
    maintenance: tuple[Maintenance, ...]
    """Our work on its machines, as of the last judgement."""


_COUNTED = [cause for cause, consequence in CONSEQUENCES.items() if consequence.counts]
_LEASES = text(f"""
SELECT l.id, l.organization_id, l.project_id, l.name, l.node_pool_id IS NOT NULL AS is_node, l.sla, l.sla_version,
       l.created_at, l.ready_at, l.release_at,
       l.billed_until, l.end_reason, l.switched_at, l.paused_at, l.unattributed_at, l.held_at, k.maintenance,
       CASE WHEN l.state IN ('{LeaseState.ENDING}', '{LeaseState.ENDED}') THEN (
         SELECT min(j.at) FROM journal j WHERE j.lease_id = l.id AND j.state_after = '{LeaseState.ENDING}')
       END AS ending_at,
       f.failed_since, f.failed_until
FROM leases l
LEFT JOIN LATERAL (
  SELECT c.machine_id, c.ended_at FROM claims c WHERE c.lease_id = l.id AND c.admitted_at IS NOT NULL
  ORDER BY c.claimed_at DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (
  SELECT CASE WHEN last.ended_at IS NULL THEN m.sighted_at ELSE l.billed_until END AS failed_since,
    m.back_since AS failed_until
  FROM machines m WHERE m.id = last.machine_id AND {among("m.down_cause", _COUNTED)}
    AND (l.state = '{LeaseState.READY}' AND last.ended_at IS NULL
      OR l.state IN ('{LeaseState.ENDING}', '{LeaseState.ENDED}'))) f ON true
JOIN sla_clocks k ON k.lease_id = l.id AND k.organization_id = l.organization_id
WHERE l.id = ANY(:ids) AND l.sla_version IS NOT NULL
""")
_USED = text(f"""
SELECT c.lease_id, c.machine_id, c.admitted_at AS since, c.ended_at AS until, EXISTS (
  SELECT FROM hand_backs b WHERE b.organization_id = c.organization_id AND b.claim_id = c.id) AS handed_back,
  c.ended_at IS NOT NULL AND m.down_since <= c.ended_at AND NOT {among("m.down_cause", _COUNTED)} AS unattributed
FROM claims c JOIN machines m ON m.id = c.machine_id
WHERE c.lease_id = ANY(:ids) AND c.admitted_at IS NOT NULL
""")
_HEALTH = text("""
SELECT machine_id, number, at, verdict, fault FROM health_changes WHERE machine_id = ANY(:machine_ids)
""")
_CHARGED = text("""
SELECT lease_id, date_trunc('month', started_at, 'UTC') AS month, sum(amount_nano)::bigint AS amount_nano
FROM charges WHERE lease_id = ANY(:ids) AND NOT unused GROUP BY 1, 2
""")
# A GPU that was proven on one of these machines and is on another one, which failed: when we looked at it before
# anybody had it, or with a tenant who never had the first one. Which GPUs a machine has counts as of its first proof,
# before any customer could forge that.
_CONFIRMED = text(f"""
SELECT DISTINCT mine.machine_id FROM proofs mine
JOIN proofs other ON other.gpu_uuids && mine.gpu_uuids AND other.machine_id <> mine.machine_id AND other.at > mine.at
WHERE mine.machine_id = ANY(:machine_ids) AND mine.outcome = '{ProofOutcome.PASSED}' AND mine.gpu_uuids <> '{{}}'
  AND mine.occasion = '{Occasion.START}' AND other.occasion = '{Occasion.START}'
  AND other.code IS DISTINCT FROM '{OwnCode.SOLD_TWICE}'
  AND NOT EXISTS (
    SELECT FROM claims c WHERE c.machine_id = other.machine_id AND c.organization_id = :organization_id)
  AND (other.outcome = '{ProofOutcome.FAILED}' OR EXISTS (
    SELECT FROM health_changes h WHERE h.machine_id = other.machine_id
      AND {among("h.verdict", BROKEN)} AND NOT {among("h.fault", FROM_OUTSIDE)}))
""")


@dataclass(frozen=True, slots=True)
class _Used:
    lease_id: LeaseId
    machine_id: MachineId
    since: datetime
    until: datetime | None
    handed_back: bool
    unattributed: bool | None


@dataclass(frozen=True, slots=True)
class _Health:
    machine_id: MachineId
    number: int
    at: datetime
    verdict: Verdict
    fault: FaultCode | None


@dataclass(frozen=True, slots=True)
class _Charged:
    lease_id: LeaseId
    month: datetime
    amount_nano: Nano


class Evidence:
    """The leases with their facts."""

    def __init__(
        self,
        leases: Sequence[PromisedLease],
        used: Mapping[LeaseId, tuple[Used, ...]],
        health: Sequence[HealthChange],
        charged: Mapping[LeaseId, Mapping[datetime, Nano]],
    ) -> None:
        self.leases = leases
        self._used, self._health, self._charged = used, health, charged

    def machines(self) -> frozenset[MachineId]:
        return frozenset(used.machine_id for uses in self._used.values() for used in uses)

    def facts(self, lease: PromisedLease, maintenance: Sequence[Maintenance] | None = None) -> Facts:
        """What is known of a lease; with `maintenance` in place of what was stored of it."""
        used = self._used.get(lease.id, ())
        machines = {each.machine_id for each in used}
        end = end_of(lease.ending_at, lease.end_reason, was_ready=lease.ready_at is not None)
        return Facts(
            created_at=lease.created_at,
            ready_at=lease.ready_at,
            end=end,
            release_at=lease.release_at,
            failures=failures_of(
                lease.paused_at, (lease.failed_since, lease.failed_until), end, lease.billed_until
            ),
            stops=in_turn(lease.switched_at),
            unattributed=in_turn(lease.unattributed_at),
            held=in_turn(lease.held_at),
            used=used,
            health=[change for change in self._health if change.machine_id in machines],
            maintenance=lease.maintenance if maintenance is None else tuple(maintenance),
            charged=self._charged.get(lease.id, {}),
        )


async def confirmed(
    connection: Connection, organization_id: OrganizationId, machine_ids: Collection[MachineId]
) -> list[MachineId]:
    """Those of an organization's machines with a GPU that failed on another machine as well, which it never had."""
    return await read(
        connection,
        _CONFIRMED,
        MachineId,
        machine_ids=list(machine_ids),
        organization_id=organization_id,
    )


async def evidence(connection: Connection, lease_ids: Collection[LeaseId]) -> Evidence:
    """The facts about leases. Those without promises are left out."""
    leases = await read(connection, _LEASES, PromisedLease, ids=list(lease_ids))
    ids = [lease.id for lease in leases]
    used: dict[LeaseId, tuple[Used, ...]] = {}
    for row in await read(connection, _USED, _Used, ids=ids):
        use = Used(row.machine_id, row.since, row.until, row.handed_back, bool(row.unattributed))
        used[row.lease_id] = (*used.get(row.lease_id, ()), use)
    machine_ids = list({each.machine_id for uses in used.values() for each in uses})
    health = [
        HealthChange(row.machine_id, row.number, row.at, row.verdict, row.fault)
        for row in await read(connection, _HEALTH, _Health, machine_ids=machine_ids)
    ]
    charged: dict[LeaseId, dict[datetime, Nano]] = {}
    for amount in await read(connection, _CHARGED, _Charged, ids=ids):
        charged.setdefault(amount.lease_id, {})[amount.month] = amount.amount_nano
    return Evidence(leases, used, health, charged)
