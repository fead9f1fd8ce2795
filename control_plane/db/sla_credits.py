"""Queries on credits for broken promises: what the ledger has yet to get, what waits for finance, and its decisions."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.sla import LATEST
from control_plane.db.tables.marks import among
from control_plane.domain.ids import LeaseId, OrganizationId, ProjectId, SlaBreachId
from control_plane.domain.money import Nano
from control_plane.domain.organization import OPEN
from control_plane.domain.sla_clock import Promise
from control_plane.domain.sla_credit import Standing

_OPEN = f"JOIN organizations o ON o.id = b.organization_id AND {among('o.state', OPEN)}"
_APPROVED_UNTIL = "(SELECT max(approved_at) FROM sla_approvals)"
_WAITING = text(f"""
SELECT count(*) AS waiting, count(*) FILTER (WHERE u.since > coalesce({_APPROVED_UNTIL}, '-infinity')) AS unapproved,
       (SELECT count(*) FROM sla_clocks WHERE NOT ended) AS leases
FROM sla_uncredited u JOIN sla_breaches b ON b.id = u.breach_id AND b.organization_id = u.organization_id {_OPEN}
""")
# The clock of the lease is locked as well, as for a judgement: an assessment that was made between reading the latest
# one and taking the breach out of the queue would never be posted. A statement of its own reads them, so that it sees
# all that was committed before the locks were had.
_TAKE_UNCREDITED = text(f"""
SELECT u.breach_id
FROM sla_uncredited u JOIN sla_breaches b ON b.id = u.breach_id AND b.organization_id = u.organization_id {_OPEN}
JOIN sla_clocks k ON k.lease_id = b.lease_id AND k.organization_id = b.organization_id
WHERE NOT :approved_only OR u.since <= {_APPROVED_UNTIL}
ORDER BY u.since, u.breach_id LIMIT :limit FOR UPDATE OF u, k SKIP LOCKED
""")
_DECIDED = "sla_undecided w JOIN sla_decisions d ON d.breach_id = w.breach_id AND d.assessment = w.assessment"
_TAKE_DECIDED = text(f"""
SELECT w.breach_id
FROM {_DECIDED} JOIN sla_breaches b ON b.id = w.breach_id AND b.organization_id = w.organization_id {_OPEN}
JOIN sla_clocks k ON k.lease_id = b.lease_id AND k.organization_id = b.organization_id
ORDER BY d.decided_at, w.breach_id LIMIT :limit FOR UPDATE OF w, k SKIP LOCKED
""")
_UNCREDITED = text(f"""
SELECT b.id, b.organization_id, b.project_id, b.lease_id, l.name AS lease_name, b.promise, b.month,
       a.number AS assessment, a.credit_nano, a.outside_nano, credited.nano AS credited_nano,
       coalesce(decided.approved_nano, 0)::bigint AS approved_nano,
       coalesce(decided.considered_nano, 0)::bigint AS considered_nano, a.why,
       d.approved, d.decided_by, d.reason, w.breach_id IS NOT NULL AS waits
FROM sla_breaches b JOIN leases l ON l.id = b.lease_id AND l.organization_id = b.organization_id {LATEST}
LEFT JOIN sla_uncredited u ON u.breach_id = b.id AND u.organization_id = b.organization_id
LEFT JOIN sla_undecided w ON w.breach_id = b.id AND w.organization_id = b.organization_id
LEFT JOIN sla_decisions d ON d.breach_id = w.breach_id AND d.assessment = w.assessment
CROSS JOIN LATERAL (
  SELECT max(x.credit_nano) FILTER (WHERE y.approved) AS approved_nano, max(x.credit_nano) AS considered_nano
  FROM sla_decisions y JOIN sla_assessments x ON x.breach_id = y.breach_id AND x.number = y.assessment
  WHERE y.breach_id = b.id
) decided
WHERE b.id = ANY(:ids) ORDER BY u.since, b.id
""")
_DEQUEUE = text(
    "DELETE FROM sla_uncredited WHERE organization_id = :organization_id AND breach_id = :breach_id"
)
_CREDIT = text("""
INSERT INTO sla_credits (breach_id, assessment, organization_id, transaction_id, amount_nano, approved, credited_at)
VALUES (:breach_id, :assessment, :organization_id, :transaction_id, :amount_nano, :approved, :now)
""")
_TRUST = text("""
INSERT INTO sla_trusts (organization_id, month, lease_id, since) VALUES (:organization_id, :month, :lease_id, :now)
ON CONFLICT DO NOTHING
""")
_IS_TRUSTED = text("""
SELECT lease_id FROM sla_trusts WHERE organization_id = :organization_id AND month = :month AND lease_id = :lease_id
""")
_WAIT = text("""
INSERT INTO sla_undecided (organization_id, breach_id, assessment, amount_nano, since)
VALUES (:organization_id, :breach_id, :assessment, :amount_nano, :now)
ON CONFLICT (organization_id, breach_id) DO UPDATE
SET assessment = excluded.assessment, amount_nano = excluded.amount_nano
""")
_WAIT_NO_MORE = text(
    "DELETE FROM sla_undecided WHERE organization_id = :organization_id AND breach_id = :breach_id"
)
_COUNT_DECIDED = text(f"SELECT count(*) FROM {_DECIDED}")
_APPROVE = text("""
INSERT INTO sla_approvals (id, approved_at, approved_by, reason) VALUES (:id, :now, :by, :reason)
""")


_DECIDE = text("""
INSERT INTO sla_decisions (breach_id, assessment, organization_id, approved, decided_by, reason, decided_at)
SELECT breach_id, assessment, organization_id, :approved, :by, :reason, :now FROM sla_undecided WHERE breach_id = :id
ON CONFLICT DO NOTHING
""")
_ORDERED_BY = text("""
SELECT j.actor FROM journal j JOIN sla_breaches b ON b.lease_id = j.lease_id AND b.organization_id = j.organization_id
WHERE b.id = :id AND j.event = 'admitted' ORDER BY j.number LIMIT 1
""")


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many breaches the ledger has yet to get the credit of."""

    waiting: int
    unapproved: int
    """Since the last time that an operator approved those that waited."""
    leases: int
    """How many live leases have promises."""


async def waiting(connection: Connection) -> Waiting:
    """The breaches whose credit is not posted, of organizations that can use it."""
    found = await read_one(connection, _WAITING, Waiting)
    return found or Waiting(0, 0, 0)


async def waiting_now(connection: Connection) -> int:
    """How many breaches wait for their credit, of those that the reader may see."""
    return await read_one(connection, text("SELECT count(*) FROM sla_uncredited"), int) or 0


@dataclass(frozen=True, slots=True)
class Uncredited:
    """A breach that the ledger has another amount for than its latest assessment says."""

    id: SlaBreachId
    organization_id: OrganizationId
    project_id: ProjectId
    lease_id: LeaseId
    lease_name: str
    promise: Promise
    month: datetime
    assessment: int
    credit_nano: Nano
    outside_nano: Nano
    credited_nano: Nano
    approved_nano: Nano
    considered_nano: Nano
    why: str
    approved: bool | None
    """The decision on the assessment that waits; None without one."""
    decided_by: str | None
    reason: str | None
    waits: bool
    """Whether a part of it waits, with a decision or without one."""

    @property
    def standing(self) -> Standing:
        return Standing(
            credit=self.credit_nano,
            outside=self.outside_nano,
            approved=self.approved_nano,
            considered=self.considered_nano,
            credited=self.credited_nano,
        )


async def decided(connection: Connection) -> int:
    """How many breaches waited for a decision that there is now."""
    return await read_one(connection, _COUNT_DECIDED, int) or 0


@dataclass(frozen=True, slots=True)
class Undecided:
    """The credits that wait for finance."""

    breaches: int
    nano: int
    oldest_at: datetime | None


_UNDECIDED_FIGURES = text(f"""
SELECT count(*) AS breaches, coalesce(sum(w.amount_nano), 0)::bigint AS nano, min(w.since) AS oldest_at
FROM sla_undecided w JOIN sla_breaches b ON b.id = w.breach_id AND b.organization_id = w.organization_id {_OPEN}
WHERE NOT EXISTS (SELECT FROM sla_decisions d WHERE d.breach_id = w.breach_id AND d.assessment = w.assessment)
""")


async def undecided_figures(connection: Connection) -> Undecided:
    """How much waits for a decision, of organizations that can use it."""
    return await read_one(connection, _UNDECIDED_FIGURES, Undecided) or Undecided(0, 0, None)


async def take_decided(connection: Connection, *, limit: int) -> list[Uncredited]:
    """Breaches that waited for a decision that there is now. They are locked as by `take_uncredited`."""
    ids = await read(connection, _TAKE_DECIDED, UUID, limit=limit)
    return await read(connection, _UNCREDITED, Uncredited, ids=ids) if ids else []


async def trust(connection: Connection, breach: Uncredited, *, now: datetime) -> bool:
    """Whether the credits of the breach's lease for its month are posted on the machine's word alone.

    The first lease of an organization that asks is the one, for ever.
    """
    lease = {
        "organization_id": breach.organization_id,
        "month": breach.month,
        "lease_id": breach.lease_id,
    }
    await write(connection, _TRUST, **lease, now=now)
    return await read_one(connection, _IS_TRUSTED, LeaseId, **lease) is not None


async def wait(connection: Connection, breach: Uncredited, amount: Nano, *, now: datetime) -> None:
    """Let this part of a breach's credit wait for a decision; with 0, nothing of it waits any more."""
    ids = {"breach_id": breach.id, "organization_id": breach.organization_id}
    if amount:
        await write(connection, _WAIT, **ids, assessment=breach.assessment, amount_nano=amount, now=now)
    elif breach.waits:
        await write(connection, _WAIT_NO_MORE, **ids)


async def take_uncredited(connection: Connection, *, approved_only: bool, limit: int) -> list[Uncredited]:
    """Breaches whose credit is to be posted, the oldest first. They are locked, and no lease of them is judged."""
    ids = await read(connection, _TAKE_UNCREDITED, UUID, approved_only=approved_only, limit=limit)
    return await read(connection, _UNCREDITED, Uncredited, ids=ids) if ids else []


async def dequeue(connection: Connection, breach: Uncredited) -> None:
    """Take a breach out of the queue."""
    await write(connection, _DEQUEUE, breach_id=breach.id, organization_id=breach.organization_id)


async def credited(
    connection: Connection, breach: Uncredited, transaction_id: UUID, amount: Nano, *, now: datetime
) -> None:
    """Store that a transaction posted this for the latest assessment."""
    await write(
        connection,
        _CREDIT,
        breach_id=breach.id,
        organization_id=breach.organization_id,
        assessment=breach.assessment,
        transaction_id=transaction_id,
        amount_nano=amount,
        approved=breach.approved is True,
        now=now,
    )


async def approve(connection: Connection, approval_id: UUID, *, by: str, reason: str, now: datetime) -> None:
    """Let the breaches that wait now be credited, however many they are."""
    await write(connection, _APPROVE, id=approval_id, by=by, reason=reason, now=now)


async def decide(
    connection: Connection, breach_id: SlaBreachId, *, approved: bool, by: str, reason: str, now: datetime
) -> bool:
    """Store the decision on what waits of a breach. False when nothing waits, or it is decided already."""
    values = {"approved": approved, "by": by, "reason": reason, "now": now}
    return bool(await write(connection, _DECIDE, id=breach_id, **values))


async def ordered_by(connection: Connection, breach_id: SlaBreachId) -> str | None:
    """Who asked for the lease of a breach; None where the reader may not see its journal."""
    return await read_one(connection, _ORDERED_BY, str, id=breach_id)
