"""Queries on broken promises: when leases are judged, breaches, assessments, and what the ledger got for them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.leases import PAUSED
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import Recordset, document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.access import Reach
from control_plane.domain.breach_evidence import BreachEvidence
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId, ProjectId, SlaBreachId
from control_plane.domain.lease import LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.sla import SlaTier
from control_plane.domain.sla_clock import Maintenance, Promise
from control_plane.domain.sla_month import LeaseMonth

_ENDED = among("l.state", (LeaseState.ENDING, LeaseState.ENDED))
_TAKE = text(f"""
SELECT lease_id FROM sla_clocks WHERE (organization_id, lease_id) IN (
  (SELECT organization_id, lease_id FROM sla_clocks WHERE due_at <= :now ORDER BY due_at LIMIT :limit)
  UNION
  (SELECT k.organization_id, k.lease_id FROM sla_clocks k
   JOIN leases l ON l.id = k.lease_id AND l.organization_id = k.organization_id
   WHERE NOT k.ended AND {_ENDED} LIMIT :limit)
) ORDER BY due_at, lease_id LIMIT :limit FOR UPDATE SKIP LOCKED
""")
_JUDGED = text("""
UPDATE sla_clocks SET due_at = :due_at, judged_at = :now, ended = :ended, maintenance = CAST(:maintenance AS jsonb)
WHERE lease_id = :lease_id AND organization_id = :organization_id
""")
_MAINTENANCE = text("""
SELECT machine_id, since AS announced_at, greatest(since, planned_at) AS begins_at, ended_at AS until,
  event IS NOT NULL AS by_provider
FROM maintenances WHERE machine_id = ANY(:machine_ids)
""")
# Time in which a bill is paused has no charge to wait for.
_CHARGED_UNTIL = text(f"""
SELECT l.id AS lease_id, least(
  CASE WHEN l.ready_at IS NULL OR l.meter_closed THEN CAST(:now AS timestamptz)
       WHEN {PAUSED} AND l.metered_until >= date_trunc('second', l.paused_at[cardinality(l.paused_at)])
       THEN CAST(:now AS timestamptz) ELSE coalesce(l.metered_until, l.ready_at) END,
  (SELECT min(i.started_at) FROM unrated u JOIN intervals i ON i.lease_id = u.lease_id AND i.number = u.number
   WHERE u.lease_id = l.id)
) AS until
FROM leases l WHERE l.id = ANY(:ids)
""")


@dataclass(frozen=True, slots=True)
class _ChargedUntil:
    lease_id: LeaseId
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBreach:
    """A promise that was found to be broken."""

    id: SlaBreachId
    organization_id: OrganizationId
    project_id: ProjectId
    lease_id: LeaseId
    promise: Promise
    month: datetime
    sla: SlaTier
    sla_version: int
    since: datetime
    why: str


@dataclass(frozen=True, slots=True)
class KnownBreach:
    """A breach that is stored, with its latest assessment."""

    id: SlaBreachId
    lease_id: LeaseId
    promise: Promise
    month: datetime
    assessment: int
    """The number of its latest assessment; 0 before the first."""
    credit_nano: Nano
    """By that."""
    outside_nano: Nano
    """What of it evidence from outside of the machine shows."""
    credited_nano: Nano
    """What the ledger got for it so far."""
    waits: bool
    """Whether a part of it waits for a decision."""


LATEST = """
LEFT JOIN LATERAL (
  SELECT number, charged_nano, credit_nano, outside_nano, why, evidence FROM sla_assessments
  WHERE breach_id = b.id AND organization_id = b.organization_id ORDER BY number DESC LIMIT 1
) a ON true
CROSS JOIN LATERAL (
  SELECT coalesce(sum(amount_nano), 0)::bigint AS nano, max(credited_at) AS at FROM sla_credits
  WHERE breach_id = b.id AND organization_id = b.organization_id
) credited
"""
_KNOWN = text(f"""
SELECT b.id, b.lease_id, b.promise, b.month, coalesce(a.number, 0) AS assessment,
       coalesce(a.credit_nano, 0)::bigint AS credit_nano, coalesce(a.outside_nano, 0)::bigint AS outside_nano,
       credited.nano AS credited_nano,
       EXISTS (SELECT FROM sla_undecided w
               WHERE w.breach_id = b.id AND w.organization_id = b.organization_id) AS waits
FROM sla_breaches b {LATEST} WHERE b.lease_id = ANY(:lease_ids)
""")
_INSERT = text("""
INSERT INTO sla_breaches (id, organization_id, project_id, lease_id, promise, month, sla, sla_version, since, found_at,
                          why, evidence)
VALUES (:id, :organization_id, :project_id, :lease_id, :promise, :month, :sla, :sla_version, :since, :now, :why,
        CAST(:evidence AS jsonb))
ON CONFLICT (lease_id, promise, month) DO NOTHING
""")
_ASSESS = text("""
INSERT INTO sla_assessments (breach_id, number, organization_id, assessed_at, charged_nano, credit_nano, outside_nano,
                             why, evidence)
VALUES (:breach_id, :number, :organization_id, :now, :charged_nano, :credit_nano, :outside_nano, :why,
        CAST(:evidence AS jsonb))
""")
_QUEUE = text("""
INSERT INTO sla_uncredited (organization_id, breach_id, since) VALUES (:organization_id, :breach_id, :now)
ON CONFLICT DO NOTHING
""")


async def take_due(connection: Connection, *, now: datetime, limit: int) -> list[LeaseId]:
    """Leases whose promises are to be judged, because that is due or because they ended. They are locked."""
    return await read(connection, _TAKE, LeaseId, now=now, limit=limit)


async def judged(
    connection: Connection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    *,
    ended: bool,
    maintenance: Sequence[Maintenance],
    due_at: datetime | None,
    now: datetime,
) -> None:
    """Store that a lease was judged, on which maintenance, and when it is again."""
    await write(
        connection,
        _JUDGED,
        organization_id=organization_id,
        lease_id=lease_id,
        ended=ended,
        maintenance=document(maintenance),
        due_at=due_at,
        now=now,
    )


@dataclass(frozen=True, slots=True)
class _Month(LeaseMonth):
    lease_id: LeaseId
    organization_id: OrganizationId
    sla: SlaTier


_MONTHS_JUDGED = Recordset(_Month, "months")
_STORE_MONTHS = text(f"""
INSERT INTO sla_months AS m (lease_id, organization_id, month, sla, promised_seconds, down_seconds, kept, broken)
SELECT lease_id, organization_id, month, sla, promised_seconds, down_seconds, kept, broken FROM {_MONTHS_JUDGED}
ON CONFLICT (organization_id, lease_id, month) DO UPDATE SET promised_seconds = excluded.promised_seconds,
  down_seconds = excluded.down_seconds, kept = excluded.kept, broken = excluded.broken
WHERE (m.promised_seconds, m.down_seconds, m.kept, m.broken)
  <> (excluded.promised_seconds, excluded.down_seconds, excluded.kept, excluded.broken)
""")


async def store_months(
    connection: Connection,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    sla: SlaTier,
    months: Iterable[LeaseMonth],
) -> None:
    """Store what the months of a lease came to, where that has changed."""
    rows = [
        _Month(
            *(each.month, each.promised_seconds, each.down_seconds, each.kept, each.broken),
            *(lease_id, organization_id, sla),
        )
        for each in months
    ]
    await write(connection, _STORE_MONTHS, months=Recordset.document(rows))


async def maintenance(connection: Connection, machine_ids: Collection[MachineId]) -> list[Maintenance]:
    """Our work on these machines."""
    return await read(connection, _MAINTENANCE, Maintenance, machine_ids=list(machine_ids))


async def charged_until(
    connection: Connection, lease_ids: Collection[LeaseId], now: datetime
) -> dict[LeaseId, datetime]:
    """Up to when the time of each lease is charged; `now` where no charge is missing."""
    found = await read(connection, _CHARGED_UNTIL, _ChargedUntil, ids=list(lease_ids), now=now)
    return {row.lease_id: row.until for row in found}


async def known(connection: Connection, lease_ids: Collection[LeaseId]) -> list[KnownBreach]:
    """The breaches of these leases that are stored."""
    return await read(connection, _KNOWN, KnownBreach, lease_ids=list(lease_ids))


async def insert(
    connection: Connection, breach: NewBreach, evidence: BreachEvidence, *, now: datetime
) -> bool:
    """Store a breach, once for a lease, a promise and a month. False when it is stored already."""
    values = {name: getattr(breach, name) for name in NewBreach.__slots__}
    values |= {"promise": breach.promise.value, "sla": breach.sla.value, "evidence": document(evidence)}
    return bool(await write(connection, _INSERT, **values, now=now))


async def assess(
    connection: Connection,
    organization_id: OrganizationId,
    breach_id: SlaBreachId,
    number: int,
    *,
    charged_nano: Nano,
    credit_nano: Nano,
    outside_nano: Nano,
    queued: bool,
    why: str,
    evidence: BreachEvidence,
    now: datetime,
) -> None:
    """Store what is to be given back for a breach from now on; with `queued`, the ledger has to get it."""
    ids = {"breach_id": breach_id, "organization_id": organization_id, "now": now}
    await write(
        connection,
        _ASSESS,
        **ids,
        number=number,
        charged_nano=charged_nano,
        credit_nano=credit_nano,
        outside_nano=outside_nano,
        why=why,
        evidence=document(evidence),
    )
    if queued:
        await write(connection, _QUEUE, **ids)


@dataclass(frozen=True, slots=True)
class BreachRecord:
    """A breach with what became of it."""

    id: SlaBreachId
    organization_id: OrganizationId
    lease_id: LeaseId
    promise: Promise
    month: datetime
    sla: SlaTier
    sla_version: int
    since: datetime
    found_at: datetime
    why: str
    """By its latest assessment, or as it was found."""
    evidence: BreachEvidence
    """What that was found by."""
    assessed: bool
    """Whether what is given back for it is known. It is once the month, or the lease, is over."""
    charged_nano: Nano
    credit_nano: Nano
    credited_nano: Nano
    credited_at: datetime | None
    """When the balance got the latest part of it."""
    waiting_nano: Nano
    """What waits for a decision, because only what was read on the machine shows it."""
    waiting_since: datetime | None
    refused_at: datetime | None
    """When a part of it was refused; None while the last decision is not a refusal."""
    refused_why: str | None


_RECORD = """
b.id, b.organization_id, b.lease_id, b.promise, b.month, b.sla, b.sla_version, b.since, b.found_at,
coalesce(a.why, b.why) AS why, coalesce(a.evidence, b.evidence) AS evidence,
a.number IS NOT NULL AS assessed, coalesce(a.charged_nano, 0)::bigint AS charged_nano,
coalesce(a.credit_nano, 0)::bigint AS credit_nano, credited.nano AS credited_nano, credited.at AS credited_at,
coalesce(w.amount_nano, 0)::bigint AS waiting_nano, w.since AS waiting_since,
r.decided_at AS refused_at, r.reason AS refused_why
"""
_DECISIONS = f"""{LATEST}
LEFT JOIN sla_undecided w ON w.breach_id = b.id AND w.organization_id = b.organization_id
LEFT JOIN LATERAL (
  SELECT decided_at, approved, reason FROM sla_decisions
  WHERE breach_id = b.id AND organization_id = b.organization_id ORDER BY assessment DESC LIMIT 1
) r ON NOT r.approved
"""
_OF_LEASE = text(f"""
SELECT {_RECORD} FROM sla_breaches b {_DECISIONS}
WHERE b.organization_id = :organization_id AND b.lease_id = :lease_id ORDER BY b.month, b.found_at, b.id
""")
_OF_MONTH = text(f"""
SELECT {_RECORD} FROM sla_breaches b {_DECISIONS}
WHERE b.month = :month AND (CAST(:organization_id AS uuid) IS NULL OR b.organization_id = :organization_id)
  AND (CAST(:after AS uuid) IS NULL OR b.id > :after)
ORDER BY b.id LIMIT :limit
""")
_UNDECIDED = text(f"""
SELECT {_RECORD} FROM sla_breaches b {_DECISIONS}
WHERE w.breach_id IS NOT NULL AND (CAST(:after AS uuid) IS NULL OR b.id > :after) ORDER BY b.id LIMIT :limit
""")
_ONE = text(f"SELECT {_RECORD} FROM sla_breaches b {_DECISIONS} WHERE b.id = :id")
_TIERS = text(f"""
SELECT sla, coalesce(m.leases, 0) AS leases, coalesce(m.kept, 0) AS kept,
       coalesce(m.promised_seconds, 0) AS promised_seconds,
       coalesce(m.down_seconds, 0) AS down_seconds, coalesce(b.breaches, 0) AS breaches,
       coalesce(b.breached_leases, 0) AS breached_leases, coalesce(b.credit_nano, 0) AS credit_nano,
       coalesce(b.credited_nano, 0) AS credited_nano
FROM (
  SELECT sla, count(*) AS leases, sum(kept)::bigint AS kept, sum(promised_seconds)::bigint AS promised_seconds,
         sum(down_seconds)::bigint AS down_seconds
  FROM sla_months
  WHERE month = :month AND (CAST(:organization_id AS uuid) IS NULL OR organization_id = :organization_id)
    AND (kept > 0 OR broken > 0)
  GROUP BY sla
) m FULL JOIN (
  SELECT b.sla, count(*) AS breaches, count(DISTINCT b.lease_id) AS breached_leases,
         coalesce(sum(a.credit_nano), 0)::bigint AS credit_nano,
         coalesce(sum(credited.nano), 0)::bigint AS credited_nano
  FROM sla_breaches b {LATEST}
  WHERE b.month = :month AND (CAST(:organization_id AS uuid) IS NULL OR b.organization_id = :organization_id)
  GROUP BY b.sla
) b USING (sla) ORDER BY sla
""")


@dataclass(frozen=True, slots=True)
class TierTotal:
    """What a month came to for the leases of a tier, as of their last judgement."""

    sla: SlaTier
    leases: int
    """Those with promises."""
    kept: int
    """Promises that were kept, so far."""
    promised_seconds: int
    """In which they were to be available, all together."""
    down_seconds: int
    """In which they were not."""
    breaches: int
    """Promises that were broken."""
    breached_leases: int
    credit_nano: Nano
    """What is given back for them, as far as it is known."""
    credited_nano: Nano
    """What of it balances have."""


async def of_lease(
    connection: Connection, organization_id: OrganizationId, lease_id: LeaseId
) -> list[BreachRecord]:
    """The breaches of a lease, the oldest first."""
    return await read(connection, _OF_LEASE, BreachRecord, organization_id=organization_id, lease_id=lease_id)


async def of_month(
    connection: Connection,
    organization_id: OrganizationId | None,
    month: datetime,
    *,
    after: UUID | None,
    limit: int,
) -> list[BreachRecord]:
    """The breaches of a month of an organization or, with None, of all; `after` is the id of the last one read."""
    values = {"organization_id": organization_id, "month": month, "after": after, "limit": limit}
    return await read(connection, _OF_MONTH, BreachRecord, **values)


async def undecided(connection: Connection, *, after: UUID | None, limit: int) -> list[BreachRecord]:
    """The breaches of all organizations of which something waits for a decision."""
    return await read(connection, _UNDECIDED, BreachRecord, after=after, limit=limit)


async def get(connection: Connection, breach_id: SlaBreachId) -> BreachRecord | None:
    """A breach, of those that the reader may see."""
    return await read_one(connection, _ONE, BreachRecord, id=breach_id)


async def tiers(
    connection: Connection, organization_id: OrganizationId | None, month: datetime
) -> list[TierTotal]:
    """The sums of a month by tier, of an organization or, with None, of all."""
    return await read(connection, _TIERS, TierTotal, organization_id=organization_id, month=month)


@dataclass(frozen=True, slots=True)
class BilledCredit:
    """What the balance got for a promise that was broken in a month."""

    id: SlaBreachId
    lease_id: LeaseId
    lease_name: str
    promise: Promise
    why: str
    amount_nano: Nano


_BILLED = text(f"""
SELECT b.id, b.lease_id, l.name AS lease_name, b.promise, coalesce(a.why, b.why) AS why, credited.nano AS amount_nano
FROM sla_breaches b JOIN leases l ON l.id = b.lease_id AND l.organization_id = b.organization_id {LATEST}
WHERE b.organization_id = :organization_id AND b.month = :month AND credited.nano <> 0
  AND (CAST(:project_id AS uuid) IS NULL OR b.project_id = :project_id) AND {within("l")}
ORDER BY l.name, b.id
""")


async def billed(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    month: datetime,
    project_id: ProjectId | None,
) -> list[BilledCredit]:
    """What the balance got for promises of leases within reach that were broken in a month."""
    values = {"organization_id": organization_id, "month": month, "project_id": project_id}
    return await read(connection, _BILLED, BilledCredit, **values, **reach_values(reach))
