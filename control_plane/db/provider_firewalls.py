"""Queries on what providers let in to the machines of leases, where their firewalls follow the rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.ids import AccountName, ClaimId, LaunchKey, LeaseId, ProviderRef
from control_plane.domain.machine import MachineState

_OF_MACHINES = f"""FROM machines m JOIN claims c ON c.machine_id = m.id JOIN firewalls f ON f.lease_id = c.lease_id
{{joined}} WHERE m.account = :account AND m.state = '{MachineState.VERIFIED}' AND m.provider_ref IS NOT NULL
  AND c.admitted_at IS NOT NULL AND c.ended_at IS NULL AND f.version > 0"""
_BEGIN = text(f"""
INSERT INTO provider_firewalls (organization_id, lease_id, due_at)
SELECT f.organization_id, f.lease_id, :now
{_OF_MACHINES.format(joined="LEFT JOIN provider_firewalls p ON p.lease_id = f.lease_id")} AND p.lease_id IS NULL
ON CONFLICT DO NOTHING
""")
# Changed rules come before looks at machines whose rules are as they were.
_TAKE = text(f"""
WITH taken AS (
  SELECT f.lease_id, c.id AS claim_id, m.launch_key, m.provider_ref, f.version,
         (p.version = f.version AND p.claim_id = c.id) IS TRUE AS is_look
  {_OF_MACHINES.format(joined="JOIN provider_firewalls p ON p.lease_id = f.lease_id")}
    AND (p.due_at <= :now OR p.tried_version IS DISTINCT FROM f.version OR p.claim_id IS DISTINCT FROM c.id)
    AND {work.FREE.replace("work_until", "p.work_until")}
  ORDER BY is_look, p.due_at, f.lease_id LIMIT :limit FOR UPDATE OF p SKIP LOCKED
)
UPDATE provider_firewalls p SET work_token = :token, work_until = :until FROM taken WHERE p.lease_id = taken.lease_id
RETURNING taken.lease_id, taken.claim_id, taken.launch_key, taken.provider_ref, taken.version, taken.is_look,
  CASE WHEN p.tried_version = taken.version AND p.claim_id = taken.claim_id THEN p.tries ELSE 0 END AS tries
""")
_APPLIED = text(f"""
UPDATE provider_firewalls SET claim_id = :claim_id, tried_version = :version, version = :version, applied_at = :now,
  tries = 0, due_at = :due_at, {work.GIVE_BACK} WHERE lease_id = :lease_id AND {work.HELD}
""")
_FAILED = text(f"""
UPDATE provider_firewalls SET tried_version = :version, tries = :tries, tried_at = :now, due_at = :due_at,
  version = CASE WHEN claim_id = :claim_id THEN version END,
  applied_at = CASE WHEN claim_id = :claim_id THEN applied_at END, claim_id = :claim_id, {work.GIVE_BACK}
WHERE lease_id = :lease_id AND {work.HELD}
""")
_RENEW = text(f"UPDATE provider_firewalls SET work_until = :until WHERE lease_id = ANY(:ids) AND {work.HELD}")
_LATER = text(f"""
UPDATE provider_firewalls SET due_at = :now, {work.GIVE_BACK} WHERE lease_id = :lease_id AND {work.HELD}
""")


@dataclass(frozen=True, slots=True)
class Due:
    """A machine whose provider is to let in what its lease has opened, or to be looked at."""

    lease_id: LeaseId
    claim_id: ClaimId
    launch_key: LaunchKey
    provider_ref: ProviderRef
    version: int
    """Of the rules, when it was taken."""
    is_look: bool
    tries: int
    """How often these rules failed at this machine's provider."""


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
    await write(connection, _BEGIN, account=account, now=now)
    values = {"account": account, "token": token, "now": now, "until": until, "limit": limit}
    return sorted(
        await read(connection, _TAKE, Due, **values), key=lambda due: (due.is_look, due.lease_id.bytes)
    )


async def renew(connection: Connection, ids: Sequence[LeaseId], *, token: UUID, until: datetime) -> bool:
    """Hold the machines of these leases for longer. False when this worker holds none of them any more."""
    return bool(await write(connection, _RENEW, ids=ids, token=token, until=until))


async def applied(
    connection: Connection, due: Due, version: int, *, token: UUID, now: datetime, look_at: datetime
) -> bool:
    """Record that the provider follows this version of the rules. False when another worker holds it."""
    values = {"lease_id": due.lease_id, "claim_id": due.claim_id, "version": version, "due_at": look_at}
    return bool(await write(connection, _APPLIED, **values, token=token, now=now))


async def failed(connection: Connection, due: Due, *, token: UUID, now: datetime, due_at: datetime) -> None:
    """Record that the provider could not be asked, or refused. Has no effect when another worker holds it."""
    values = {"lease_id": due.lease_id, "claim_id": due.claim_id, "version": due.version, "due_at": due_at}
    await write(connection, _FAILED, **values, tries=due.tries + 1, token=token, now=now)


async def later(connection: Connection, due: Due, *, token: UUID, now: datetime) -> None:
    """Give back what needs more steps than one turn has."""
    await write(connection, _LATER, lease_id=due.lease_id, token=token, now=now)
