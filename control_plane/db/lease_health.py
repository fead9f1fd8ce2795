"""Queries on the health of the machines that an organization's leases have: one, and counts of them in groups."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import read
from control_plane.domain.access import Reach
from control_plane.domain.enforcement import Detector
from control_plane.domain.health import Fault, FaultCode, Verdict
from control_plane.domain.health_watch import LookedAt
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId
from control_plane.domain.proof import ProofOutcome
from control_plane.domain.telemetry import FRESH_FOR


class GroupedBy(StrEnum):
    PROJECT = "project"
    SKU = "sku"
    REGION = "region"


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition of a lease that was found and is not over."""

    detector: Detector
    since: datetime
    why: str
    """What is done about it, or what that waits for."""


@dataclass(frozen=True, slots=True)
class MachineHealth:
    """What is known of how the machine of a lease is, with the time of each piece of evidence."""

    machine_id: MachineId
    verdict: Verdict
    fault: FaultCode | None
    why: str
    since: datetime | None
    """Since when the verdict is so; None if no fault was ever found."""
    judged_at: datetime | None
    faults: tuple[Fault, ...]
    """All that are open, the oldest first."""
    alerts: tuple[Alert, ...]
    """The oldest first."""
    sampled_at: datetime | None
    heartbeat_at: datetime | None
    listed_at: datetime | None
    """When its provider listed it last as running, if it does not do so all the time."""
    missing_since: datetime | None
    down_since: datetime | None
    looked_at: datetime | None
    """When we read it ourselves last, over SSH."""
    looked: tuple[LookedAt, ...]
    """The faults that we saw then."""
    look_due_at: datetime | None
    """When we look next; None when nothing calls for it."""
    looked_why_not: str | None
    """Why the last try failed; None when it did not."""
    proven_at: datetime | None
    proof: ProofOutcome | None


@dataclass(frozen=True, slots=True)
class HealthGroup:
    """Machines that leases have now, counted."""

    name: str
    machines: int
    gpus: int
    healthy: int
    degraded: int
    maintenance_required: int
    quarantined: int
    lost: int
    silent: int
    """Without a fresh sample, whatever their verdict is."""


_OF_LEASE = text(f"""
SELECT c.machine_id, coalesce(h.verdict, '{Verdict.HEALTHY}') AS verdict, h.fault, coalesce(h.why, '') AS why, h.since,
  h.judged_at, coalesce(o.faults, '[]') AS faults, coalesce(f.alerts, '[]') AS alerts,
  s.at AS sampled_at, a.reported_at AS heartbeat_at, m.sighted_at AS listed_at,
  m.missed_since AS missing_since, m.down_since, h.looked_at,
  coalesce(h.looked, '[]') AS looked, h.look_due_at, h.looked_why_not, p.at AS proven_at, p.outcome AS proof
FROM claims c JOIN machines m ON m.id = c.machine_id
  LEFT JOIN machine_health h ON h.machine_id = c.machine_id
  LEFT JOIN agents a ON a.claim_id = c.id
  LEFT JOIN LATERAL (
    SELECT jsonb_agg(each ORDER BY CAST(each->>'first_at' AS timestamptz), each->>'code', each->'gpu') AS faults
    FROM jsonb_array_elements(h.faults || h.row_faults) each) o ON true
  LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object('detector', detector, 'since', since, 'why', why) ORDER BY since) AS alerts
    FROM findings WHERE findings.claim_id = c.id AND findings.closed_at IS NULL) f ON true
  LEFT JOIN LATERAL (SELECT at FROM samples WHERE samples.claim_id = c.id ORDER BY at DESC LIMIT 1) s ON true
  LEFT JOIN LATERAL (
    SELECT at, outcome FROM proofs WHERE proofs.machine_id = c.machine_id AND proofs.lease_id = c.lease_id
    ORDER BY at DESC LIMIT 1) p ON true
WHERE c.lease_id = :lease_id AND c.ended_at IS NULL ORDER BY c.claimed_at, c.id
""")
_NAMES = {GroupedBy.PROJECT: "p.name", GroupedBy.SKU: "l.sku", GroupedBy.REGION: "m.region"}
_VERDICTS = ", ".join(f"count(*) FILTER (WHERE verdict = '{verdict}') AS {verdict}" for verdict in Verdict)
_GROUPS = {
    by: text(f"""
SELECT name, count(*) AS machines, CAST(sum(gpu_count) AS bigint) AS gpus, {_VERDICTS},
  count(*) FILTER (WHERE NOT sampled AND admitted_at <= :fresh_from) AS silent
FROM (
  SELECT {name} AS name, m.gpu_count, c.admitted_at, coalesce(h.verdict, '{Verdict.HEALTHY}') AS verdict,
    EXISTS (SELECT FROM samples WHERE samples.claim_id = c.id AND samples.at > :fresh_from) AS sampled
  FROM claims c JOIN leases l ON l.id = c.lease_id JOIN projects p ON p.id = l.project_id
    JOIN machines m ON m.id = c.machine_id LEFT JOIN machine_health h ON h.machine_id = c.machine_id
  WHERE c.organization_id = :organization_id AND c.ended_at IS NULL AND c.admitted_at IS NOT NULL AND {within("l")}
) held GROUP BY name ORDER BY name
""")
    for by, name in _NAMES.items()
}


async def of_lease(connection: Connection, lease_id: LeaseId) -> list[MachineHealth]:
    """The machines that the lease has now."""
    return await read(connection, _OF_LEASE, MachineHealth, lease_id=lease_id)


async def groups(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    by: GroupedBy,
    now: datetime,
    fresh_for: timedelta = FRESH_FOR,
) -> list[HealthGroup]:
    """The machines that customers were admitted to, of leases within reach, in groups by name."""
    values = {"organization_id": organization_id, "fresh_from": now - fresh_for, **reach_values(reach)}
    return await read(connection, _GROUPS[by], HealthGroup, **values)
