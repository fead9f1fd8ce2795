"""Queries on the firewalls of leases: their rules, and which of them a machine has."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.domain.claim import Claim
from control_plane.domain.firewall import Admitted, Firewall, FirewallProblem, FirewallRule
from control_plane.domain.ids import AccountName, ClaimId, LaunchKey, LeaseId
from control_plane.domain.lease import Lease
from control_plane.domain.machine import MachineState

CHANGES = "splitplane_firewalls"
"""The channel on which PostgreSQL notifies of changed rules, when they are committed."""

_GET = text("""
SELECT f.lease_id, f.organization_id, f.project_id, f.version, f.rules, f.changed_at, f.claim_id, f.applied_version,
  f.applied_at, f.looked_at, f.problem AS machine_problem, p.claim_id AS provider_claim_id,
  p.version AS provider_version, p.applied_at AS provider_applied_at, coalesce(p.tries, 0) > 0 AS provider_failed
FROM firewalls f
LEFT JOIN provider_firewalls p ON p.organization_id = f.organization_id AND p.lease_id = f.lease_id
WHERE f.organization_id = :organization_id AND f.lease_id = :lease_id
""")
_ADMITTED_CLAIM = text("""
SELECT c.id AS claim_id, o.firewall AS provider
FROM claims c JOIN machines m ON m.id = c.machine_id LEFT JOIN offers o ON o.key = m.offer_key
WHERE c.organization_id = :organization_id AND c.lease_id = :lease_id AND c.admitted_at IS NOT NULL
  AND c.ended_at IS NULL
""")
_CHANGE = text("""
INSERT INTO firewalls (lease_id, organization_id, project_id, version, rules, changed_at, due_at)
VALUES (:lease_id, :organization_id, :project_id, 1, CAST(:rules AS jsonb), :now, :now)
ON CONFLICT (organization_id, lease_id) DO UPDATE SET version = firewalls.version + 1, rules = excluded.rules,
  changed_at = :now, due_at = :now, tries = 0
""")
_NOTIFY = text("SELECT pg_notify(:channel, '')")
_RULES = text("SELECT version, rules FROM firewalls WHERE lease_id = :lease_id")
# Changed rules come before looks at machines whose rules are as they were.
_TAKE = text(f"""
WITH taken AS (
  SELECT f.lease_id, c.id AS claim_id, m.launch_key, m.address, m.ssh_port, m.host_key,
         (f.applied_version = f.version AND f.claim_id = c.id) IS TRUE AS is_look
  FROM machines m JOIN claims c ON c.machine_id = m.id JOIN firewalls f ON f.lease_id = c.lease_id
  WHERE m.account = :account AND m.state = '{MachineState.VERIFIED}' AND c.admitted_at IS NOT NULL
    AND c.ended_at IS NULL AND f.due_at <= :now AND {work.FREE.replace("work_until", "f.work_until")}
  ORDER BY is_look, f.due_at, f.lease_id LIMIT :limit FOR UPDATE OF f SKIP LOCKED
)
UPDATE firewalls f SET work_token = :token, work_until = :until FROM taken WHERE f.lease_id = taken.lease_id
RETURNING f.lease_id, taken.claim_id, taken.launch_key, taken.address, taken.ssh_port, taken.host_key, taken.is_look,
          f.version, f.digest, f.tries
""")
_LATER = "due_at = CASE WHEN version = :version THEN CAST(:due_at AS timestamptz) ELSE :now END"
"""Rules that were changed while a machine was being told are due at once."""
_TOLD = f"""
claim_id = :claim_id, applied_version = :version, applied_at = :now, digest = :digest, looked_at = :now,
problem = NULL, tries = 0, {work.GIVE_BACK}"""
_APPLIED = text(f"UPDATE firewalls SET {_TOLD}, {_LATER} WHERE lease_id = :lease_id AND {work.HELD}")
_ADMITTED = text(f"""
INSERT INTO firewalls (lease_id, organization_id, project_id, version, due_at, claim_id, applied_version, applied_at,
                       digest, looked_at)
VALUES (:lease_id, :organization_id, :project_id, :version, :due_at, :claim_id, :version, :now, :digest, :now)
ON CONFLICT (organization_id, lease_id) DO UPDATE SET {_TOLD},
  {_LATER.replace("WHEN version", "WHEN firewalls.version")}
""")
_LOOKED = text(f"""
UPDATE firewalls SET looked_at = :now, problem = :problem, tries = 0, {work.GIVE_BACK}, {_LATER}
WHERE lease_id = :lease_id AND {work.HELD}
""")
_FAILED = text(f"""
UPDATE firewalls SET problem = :problem, tries = tries + 1, tried_at = :now, {work.GIVE_BACK}, {_LATER}
WHERE lease_id = :lease_id AND {work.HELD}
""")


@dataclass(frozen=True, slots=True)
class Rules:
    version: int
    rules: tuple[FirewallRule, ...]


@dataclass(frozen=True, slots=True)
class Due:
    """A machine that is to get the rules of its lease, or to be looked at."""

    lease_id: LeaseId
    claim_id: ClaimId
    launch_key: LaunchKey
    address: str | None
    ssh_port: int
    host_key: str | None
    is_look: bool
    version: int
    """Of the rules, when it was taken."""
    digest: str | None
    """What the machine's kernel had when it got rules last."""
    tries: int


async def get(connection: Connection, lease: Lease) -> Firewall:
    """The firewall of a lease, with or without rules."""
    found = await read_one(
        connection, _GET, Firewall, organization_id=lease.organization_id, lease_id=lease.id
    )
    return found or Firewall(
        lease.id, lease.organization_id, lease.project_id, 0, (), None, None, None, None, None, None
    )


async def admitted_claim(connection: Connection, lease: Lease) -> Admitted | None:
    values = {"organization_id": lease.organization_id, "lease_id": lease.id}
    return await read_one(connection, _ADMITTED_CLAIM, Admitted, **values)


async def change(
    connection: Connection, lease: Lease, rules: Sequence[FirewallRule], *, now: datetime
) -> None:
    """Replace the rules of a lease, which is locked, and wake the loop that tells its machine."""
    await write(
        connection,
        _CHANGE,
        lease_id=lease.id,
        organization_id=lease.organization_id,
        project_id=lease.project_id,
        rules=document(rules),
        now=now,
    )
    await read(connection, _NOTIFY, object, channel=CHANGES)


async def rules_of(connection: Connection, lease_id: LeaseId) -> Rules:
    """What the machine of a lease has to have now."""
    return await read_one(connection, _RULES, Rules, lease_id=lease_id) or Rules(0, ())


async def take(
    connection: Connection,
    account: AccountName,
    *,
    token: UUID,
    now: datetime,
    until: datetime,
    limit: int,
) -> list[Due]:
    """Hold, until `until`, machines of an account that are due."""
    values = {"account": account, "token": token, "now": now, "until": until, "limit": limit}
    return sorted(
        await read(connection, _TAKE, Due, **values), key=lambda due: (due.is_look, due.lease_id.bytes)
    )


async def applied(
    connection: Connection,
    due: Due,
    version: int,
    digest: str,
    *,
    token: UUID,
    now: datetime,
    look_at: datetime,
) -> bool:
    """Record that a machine has this version of the rules. False when another worker holds it."""
    values = {"claim_id": due.claim_id, "version": version, "digest": digest, "due_at": look_at}
    return bool(await write(connection, _APPLIED, lease_id=due.lease_id, **values, token=token, now=now))


async def admitted(
    connection: Connection, claim: Claim, version: int, digest: str, *, now: datetime, look_at: datetime
) -> None:
    """Record which rules a machine has whose customer is admitted in the same transaction."""
    await write(
        connection,
        _ADMITTED,
        lease_id=claim.lease_id,
        organization_id=claim.organization_id,
        project_id=claim.project_id,
        claim_id=claim.id,
        version=version,
        digest=digest,
        now=now,
        due_at=look_at,
    )


async def looked(
    connection: Connection,
    due: Due,
    problem: FirewallProblem | None,
    *,
    token: UUID,
    now: datetime,
    look_at: datetime,
) -> bool:
    """Record whether a machine still has its rules. False when another worker holds it."""
    values = {"lease_id": due.lease_id, "problem": problem, "version": due.version, "due_at": look_at}
    return bool(await write(connection, _LOOKED, **values, token=token, now=now))


async def failed(
    connection: Connection,
    due: Due,
    problem: FirewallProblem,
    *,
    token: UUID,
    now: datetime,
    due_at: datetime,
) -> None:
    """Record why a machine could not be told or looked at. Has no effect when another worker holds it."""
    values = {"lease_id": due.lease_id, "problem": problem, "version": due.version, "due_at": due_at}
    await write(connection, _FAILED, **values, token=token, now=now)
