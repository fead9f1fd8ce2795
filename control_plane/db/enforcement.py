"""Queries on enforcement: leases with what detectors read of them, findings, actions and their ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from control_plane.db.conditions import USED
from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, document, read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.enforcement import (
    BOUNDED,
    LEFT_ALONE_AFTER,
    ActionEnd,
    Basis,
    Case,
    Detector,
    EnforcementAction,
    Finding,
    FindingOutcome,
    Taken,
)
from control_plane.domain.ids import (
    ClaimId,
    EnforcementActionId,
    FindingId,
    LeaseId,
    MachineId,
    OrganizationId,
)
from control_plane.domain.notice import NoticeKind

# Findings


@dataclass(frozen=True, slots=True)
class _OpenFinding:
    id: FindingId
    detector: Detector
    claim_id: ClaimId
    opened_at: datetime
    since: datetime
    step_at: datetime
    action_id: EnforcementActionId | None
    action: EnforcementAction | None
    action_at: datetime | None
    expires_at: datetime | None
    planned_at: datetime | None
    armed: bool | None
    ended: ActionEnd | None

    def value(self) -> Finding:
        return Finding(
            self.id, self.detector, self.claim_id, self.opened_at, self.since, self.step_at, self._taken()
        )

    def _taken(self) -> Taken | None:
        if self.action_id is None or self.action is None or self.action_at is None or self.expires_at is None:
            return None
        return Taken(
            self.action_id,
            self.action,
            self.action_at,
            self.expires_at,
            self.planned_at,
            self.ended,
            armed=bool(self.armed),
        )


_FINDING = """
SELECT f.id, f.detector, f.claim_id, f.opened_at, f.since, f.step_at, a.id AS action_id, a.action, a.at AS action_at,
  a.expires_at, a.planned_at, a.armed, e.ended
FROM findings f LEFT JOIN LATERAL (
  SELECT x.id, x.action, x.at, x.expires_at, x.planned_at, x.armed FROM enforcement_actions x
  WHERE x.finding_id = f.id ORDER BY x.at DESC, x.id DESC LIMIT 1) a ON true
LEFT JOIN enforcement_ends e ON e.action_id = a.id
"""
_OPEN_OF_CLAIMS = text(f"{_FINDING} WHERE f.closed_at IS NULL AND f.claim_id = ANY(:claim_ids)")
_LOCKED = text(f"{_FINDING} WHERE f.closed_at IS NULL AND f.id = :id FOR UPDATE OF f")
_MUTED = text(f"""
SELECT claim_id, detector, max(closed_at) AS closed_at FROM findings
WHERE claim_id = ANY(:claim_ids) AND {among("outcome", LEFT_ALONE_AFTER)} AND closed_at > :since
GROUP BY claim_id, detector
""")
_OPEN = text("""
INSERT INTO findings (id, organization_id, project_id, lease_id, claim_id, machine_id, detector, opened_at, since,
  step_at, why)
SELECT :id, :organization_id, :project_id, :lease_id, :claim_id, :machine_id, :detector, :now, :since, :now, :why
ON CONFLICT DO NOTHING
""")
_WAIT = text("UPDATE findings SET why = :why WHERE id = :id AND closed_at IS NULL AND why <> :why")


@dataclass(frozen=True, slots=True)
class Waits:
    """What an open finding waits for."""

    id: FindingId
    why: str


# A finding that somebody else holds is about to change anyway.
_WAIT_ALL = text(f"""
UPDATE findings f SET why = n.why FROM (
  SELECT x.id, waits.why FROM {Recordset(Waits, "waits")} JOIN findings x ON x.id = waits.id
  WHERE x.closed_at IS NULL AND x.why <> waits.why FOR UPDATE OF x SKIP LOCKED) n
WHERE f.id = n.id
""")
_STEP = text("UPDATE findings SET why = :why, step_at = :step_at WHERE id = :id AND closed_at IS NULL")
_CLOSE = text("""
UPDATE findings SET closed_at = :now, outcome = :outcome, why = :why WHERE id = :id AND closed_at IS NULL
""")
_GONE = text(f"""
{_FINDING} JOIN claims c ON c.id = f.claim_id AND c.organization_id = f.organization_id
JOIN leases l ON l.id = f.lease_id AND l.organization_id = f.organization_id
WHERE f.closed_at IS NULL AND NOT ({USED}) ORDER BY f.id LIMIT :limit
""")


async def open_findings(
    connection: Connection, claim_ids: Sequence[ClaimId]
) -> dict[tuple[ClaimId, Detector], Finding]:
    found = (
        await read(connection, _OPEN_OF_CLAIMS, _OpenFinding, claim_ids=list(claim_ids)) if claim_ids else []
    )
    return {(row.claim_id, row.detector): row.value() for row in found}


@dataclass(frozen=True, slots=True)
class _Muted:
    claim_id: ClaimId
    detector: Detector
    closed_at: datetime


async def left_alone_since(
    connection: Connection, claim_ids: Sequence[ClaimId], since: datetime
) -> dict[tuple[ClaimId, Detector], datetime]:
    """When a finding was closed last after which its detector leaves the claim alone, if that is after `since`."""
    values = {"claim_ids": list(claim_ids), "since": since}
    found = await read(connection, _MUTED, _Muted, **values) if claim_ids else []
    return {(row.claim_id, row.detector): row.closed_at for row in found}


async def lock_finding(connection: Connection, finding_id: FindingId) -> Finding | None:
    """A finding, locked; None when it was closed meanwhile."""
    found = await read_one(connection, _LOCKED, _OpenFinding, id=finding_id)
    return None if found is None else found.value()


async def open_finding(
    connection: Connection, finding_id: FindingId, case: Case, *, since: datetime, why: str, now: datetime
) -> bool:
    """Store that a condition was found. False when it is stored already."""
    lease = case.lease
    return bool(
        await write(
            connection,
            _OPEN,
            id=finding_id,
            organization_id=lease.organization_id,
            project_id=lease.project_id,
            lease_id=lease.lease_id,
            claim_id=lease.claim_id,
            machine_id=lease.machine_id,
            detector=case.detector,
            since=since,
            why=why,
            now=now,
        )
    )


async def wait(connection: Connection, finding_id: FindingId, why: str) -> None:
    """Store what a finding waits for."""
    await write(connection, _WAIT, id=finding_id, why=why)


async def wait_all(connection: Connection, waits: Sequence[Waits]) -> None:
    await write(connection, _WAIT_ALL, waits=Recordset.document(waits))


async def step(connection: Connection, finding_id: FindingId, why: str, *, step_at: datetime) -> None:
    await write(connection, _STEP, id=finding_id, why=why, step_at=step_at)


async def close(
    connection: Connection, finding_id: FindingId, outcome: FindingOutcome, why: str, *, now: datetime
) -> bool:
    return bool(await write(connection, _CLOSE, id=finding_id, outcome=outcome, why=why, now=now))


async def gone(connection: Connection, *, limit: int) -> list[Finding]:
    """Open findings of leases that do not use their machine any more."""
    return [row.value() for row in await read(connection, _GONE, _OpenFinding, limit=limit)]


# Actions


@dataclass(frozen=True, slots=True)
class NewAction:
    id: EnforcementActionId
    finding_id: FindingId
    action: EnforcementAction
    armed: bool
    at: datetime
    expires_at: datetime
    planned_at: datetime | None
    basis: Basis
    why: str
    evidence: Mapping[str, object]
    rules: str


_TAKE = text("""
INSERT INTO enforcement_actions (id, organization_id, project_id, finding_id, lease_id, claim_id, machine_id, detector,
  action, armed, at, expires_at, planned_at, basis, why, evidence, rules)
SELECT :id, f.organization_id, f.project_id, f.id, f.lease_id, f.claim_id, f.machine_id, f.detector,
  :action, :armed, :at, :expires_at, :planned_at, :basis, :why, CAST(:evidence AS jsonb), :rules
FROM findings f WHERE f.id = :finding_id
""")
_END = text("""
INSERT INTO enforcement_ends (action_id, organization_id, at, ended, ended_by, why)
SELECT a.id, a.organization_id, :now, :ended, :ended_by, :why FROM enforcement_actions a WHERE a.id = :id
ON CONFLICT DO NOTHING
""")


async def take(connection: Connection, new: NewAction) -> None:
    values = {
        "id": new.id,
        "finding_id": new.finding_id,
        "action": new.action,
        "armed": new.armed,
        "at": new.at,
        "expires_at": new.expires_at,
        "planned_at": new.planned_at,
        "basis": new.basis,
        "why": new.why,
        "rules": new.rules,
    }
    await write(connection, _TAKE, evidence=document(new.evidence), **values)


async def end(
    connection: Connection,
    action_id: EnforcementActionId,
    ended: ActionEnd,
    *,
    by: str,
    why: str,
    now: datetime,
) -> bool:
    """Store how an action ended. False when it had ended."""
    return bool(await write(connection, _END, id=action_id, ended=ended, ended_by=by, why=why, now=now))


@dataclass(frozen=True, slots=True)
class RunningAction:
    """An action that has not ended."""

    id: EnforcementActionId
    lease_id: LeaseId
    action: EnforcementAction
    detector: Detector
    armed: bool
    by: str
    """Who asked for it to be undone; empty when its time is over."""
    why: str


_TAKEN_SINCE = text(f"""
SELECT m.account, m.region, a.action, a.armed, count(*) AS actions
FROM enforcement_actions a JOIN machines m ON m.id = a.machine_id
WHERE a.at > :since AND {among("a.action", BOUNDED)} GROUP BY m.account, m.region, a.action, a.armed
""")


@dataclass(frozen=True, slots=True)
class TakenThere:
    """How many actions of a kind were taken, or only decided, in a region of an account."""

    account: str
    region: str
    action: EnforcementAction
    armed: bool
    actions: int


async def taken_since(connection: Connection, since: datetime) -> list[TakenThere]:
    """The actions that have bounds and that were taken since then, whichever process took them."""
    return await read(connection, _TAKEN_SINCE, TakenThere, since=since)


# What has not ended is the last action of an open finding: the next action ends the one before, and so does the end of
# the finding. So the history of actions, which only grows, is not looked through.
_OVER = text("""
SELECT a.id, a.lease_id, a.action, a.detector, a.armed, coalesce(u.asked_by, '') AS by, coalesce(u.why, '') AS why
FROM findings f CROSS JOIN LATERAL (
  SELECT x.id, x.lease_id, x.action, x.detector, x.armed, x.expires_at FROM enforcement_actions x
  WHERE x.finding_id = f.id ORDER BY x.at DESC, x.id DESC LIMIT 1) a
LEFT JOIN enforcement_undos u ON u.action_id = a.id
WHERE f.closed_at IS NULL AND (a.expires_at <= :now OR u.action_id IS NOT NULL)
  AND NOT EXISTS (SELECT FROM enforcement_ends e WHERE e.action_id = a.id)
ORDER BY a.expires_at, a.id LIMIT :limit
""")


async def over(connection: Connection, *, now: datetime, limit: int) -> list[RunningAction]:
    """Actions whose time is over, or that an operator wants to be undone."""
    return await read(connection, _OVER, RunningAction, now=now, limit=limit)


_NOTIFY = text("""
INSERT INTO notices (organization_id, project_id, lease_id, machine_id, at, kind, message, planned_at)
SELECT c.organization_id, c.project_id, c.lease_id, c.machine_id, :now, :kind, :message, :planned_at
FROM claims c WHERE c.id = :claim_id
""")


async def notify(
    connection: Connection,
    claim_id: ClaimId,
    kind: NoticeKind,
    message: str,
    *,
    planned_at: datetime | None,
    now: datetime,
) -> None:
    """Tell the customer of a claim."""
    values = {"kind": kind, "message": message, "planned_at": planned_at}
    await write(connection, _NOTIFY, claim_id=claim_id, now=now, **values)


# Detectors


@dataclass(frozen=True, slots=True)
class Arm:
    """The last word of an operator on a detector."""

    detector: Detector
    armed: bool
    at: datetime
    set_by: str
    why: str


_ARMS = text("""
SELECT DISTINCT ON (detector) detector, armed, at, set_by, why FROM detector_arms ORDER BY detector, at DESC, id DESC
""")
_ARM = text("""
INSERT INTO detector_arms (id, detector, armed, at, set_by, why) VALUES (:id, :detector, :armed, :at, :set_by, :why)
""")


async def arms(connection: Connection) -> dict[Detector, Arm]:
    """The last word of an operator on each detector that there was one on."""
    return {arm.detector: arm for arm in await read(connection, _ARMS, Arm)}


async def arm(connection: Connection, arm_id: UUID, new: Arm) -> None:
    values = {"detector": new.detector, "armed": new.armed, "at": new.at, "set_by": new.set_by}
    await write(connection, _ARM, id=arm_id, why=new.why, **values)


# Signals


@dataclass(frozen=True, slots=True)
class MachineSignal:
    """What the workload of a claim is asked for now."""

    claim_id: ClaimId
    action: EnforcementAction
    reason: str
    """The detector, or `preemption` where the machine of an interruptible lease is taken back."""
    until: datetime
    ends_at: datetime | None
    """When the machine is stopped, or the lease ends."""


_SIGNALS = text("SELECT claim_id, action, reason, until, ends_at FROM machine_signals(:moment)")


async def signals(connection: Connection, *, now: datetime) -> dict[ClaimId, MachineSignal]:
    """The strongest action that is in force for each claim, of those that a workload can read."""
    found = await read(connection, _SIGNALS, MachineSignal, moment=now)
    return {signal.claim_id: signal for signal in found}


# What people read and ask for


@dataclass(frozen=True, slots=True)
class ShownAction:
    """An action, with how it ended."""

    id: EnforcementActionId
    lease_id: LeaseId
    machine_id: MachineId
    detector: Detector
    action: EnforcementAction
    armed: bool
    at: datetime
    expires_at: datetime
    planned_at: datetime | None
    basis: Basis
    why: str
    evidence: Mapping[str, Any]
    rules: str
    ended_at: datetime | None
    ended: ActionEnd | None
    ended_by: str | None
    ended_why: str | None


_SHOWN = """
SELECT a.id, a.lease_id, a.machine_id, a.detector, a.action, a.armed, a.at, a.expires_at, a.planned_at, a.basis, a.why,
  a.evidence, a.rules, e.at AS ended_at, e.ended, e.ended_by, e.why AS ended_why
FROM enforcement_actions a LEFT JOIN enforcement_ends e ON e.action_id = a.id
"""
_OF_LEASE = text(f"""
{_SHOWN} WHERE a.organization_id = :organization_id AND a.lease_id = :lease_id AND a.armed
  AND (CAST(:at AS timestamptz) IS NULL OR (a.at, a.id) < (:at, CAST(:id AS uuid)))
ORDER BY a.at DESC, a.id DESC LIMIT :limit
""")
_LIST = text(f"""
{_SHOWN} WHERE (NOT CAST(:running AS boolean) OR e.action_id IS NULL)
  AND (CAST(:lease_id AS uuid) IS NULL OR a.lease_id = :lease_id)
  AND (CAST(:at AS timestamptz) IS NULL OR (a.at, a.id) < (:at, CAST(:id AS uuid)))
ORDER BY a.at DESC, a.id DESC LIMIT :limit
""")
_ONE = text(f"{_SHOWN} WHERE a.id = :id")
_UNDO = text("""
INSERT INTO enforcement_undos (action_id, asked_at, asked_by, why) VALUES (:id, :now, :by, :why) ON CONFLICT DO NOTHING
""")
_OPEN_COUNTS = text(
    "SELECT detector, count(*) AS leases FROM findings WHERE closed_at IS NULL GROUP BY detector"
)

Before = tuple[datetime, UUID] | None


async def of_lease(
    connection: Connection, organization_id: OrganizationId, lease_id: LeaseId, *, before: Before, limit: int
) -> list[ShownAction]:
    """The actions about a lease that were taken, the latest first."""
    at, action_id = before or (None, None)
    values = {"organization_id": organization_id, "lease_id": lease_id, "at": at, "id": action_id}
    return await read(connection, _OF_LEASE, ShownAction, limit=limit, **values)


async def page(
    connection: Connection, *, only_running: bool, lease_id: LeaseId | None, before: Before, limit: int
) -> list[ShownAction]:
    """The actions about all leases, taken or only decided, the latest first."""
    at, action_id = before or (None, None)
    values = {"running": only_running, "lease_id": lease_id, "at": at, "id": action_id}
    return await read(connection, _LIST, ShownAction, limit=limit, **values)


async def show(connection: Connection, action_id: EnforcementActionId) -> ShownAction | None:
    return await read_one(connection, _ONE, ShownAction, id=action_id)


async def ask_undo(
    connection: Connection, action_id: EnforcementActionId, *, by: str, why: str, now: datetime
) -> None:
    """Store that an operator wants an action to be undone. The first word counts."""
    await write(connection, _UNDO, id=action_id, by=by, why=why, now=now)


@dataclass(frozen=True, slots=True)
class _Count:
    detector: Detector
    leases: int


async def open_counts(connection: Connection) -> dict[Detector, int]:
    """For how many leases the condition of each detector holds."""
    return {count.detector: count.leases for count in await read(connection, _OPEN_COUNTS, _Count)}
