"""Queries on revoked SSH certificates whose machines do not know it yet.

Of how many revocations the machine of a claim was told is stored with the claim. A revocation is not undone, so the
number only grows, and a machine that was told of fewer is told again. So nothing depends on the order in which
revocations are committed, and a machine that was away catches up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import AccountName, ClaimId, LaunchKey, LeaseId
from control_plane.domain.machine import MachineState

_LIVES = among("m.state", (MachineState.VERIFIED, MachineState.TERMINATING))
# A claim that has ended is told too while its machine lives, because the provider may take its time to terminate it.
# Every certificate of its lease is over then. Machines that were never told come first, and then those that were told
# or tried the longest time ago, so that nobody who revokes all the time holds up others.
_TAKE = text(f"""
WITH taken AS (
  SELECT c.id, m.launch_key, m.address, m.ssh_port, m.host_key
  FROM machines m JOIN claims c ON c.machine_id = m.id CROSS JOIN LATERAL (
    SELECT CASE WHEN c.ended_at IS NULL THEN (
      SELECT count(*) FROM ssh_certificates s
      WHERE s.lease_id = c.lease_id AND s.revoked_at IS NOT NULL AND s.signed_at IS NOT NULL
    ) ELSE (
      SELECT count(*) FROM ssh_certificates s WHERE s.lease_id = c.lease_id AND s.signed_at IS NOT NULL
    ) END AS revoked
  ) over
  WHERE m.account = :account AND {_LIVES} AND c.admitted_at IS NOT NULL
    AND (c.ssh_revoked_due_at IS NULL OR c.ssh_revoked_due_at <= :now)
    AND over.revoked > coalesce(c.ssh_revoked, 0)
  ORDER BY c.ssh_revoked_due_at NULLS FIRST, c.id LIMIT :limit FOR UPDATE OF c SKIP LOCKED
)
UPDATE claims c SET ssh_revoked_due_at = :again FROM taken WHERE c.id = taken.id
RETURNING c.id AS claim_id, c.lease_id, taken.launch_key, taken.address, taken.ssh_port, taken.host_key
""")
_REVOKED_OF = text("""
WITH over AS (
  SELECT s.serial, s.valid_before FROM claims c JOIN ssh_certificates s ON s.lease_id = c.lease_id
  WHERE c.id = :id AND s.signed_at IS NOT NULL AND (c.ended_at IS NOT NULL OR s.revoked_at IS NOT NULL)
)
SELECT ARRAY(SELECT serial FROM over ORDER BY valid_before DESC, serial LIMIT :serials) AS serials, count(*) AS count
FROM over HAVING count(*) > 0
""")
_TOLD = text("UPDATE claims SET ssh_revoked = :revoked, ssh_revoked_due_at = :now WHERE id = :id")


@dataclass(frozen=True, slots=True)
class Revoked:
    """What the machine of a claim has to refuse."""

    serials: tuple[int, ...]
    """Those that end last come first; of many, only so many as were asked for."""
    count: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class Untold:
    """A machine on which certificates have to be revoked."""

    claim_id: ClaimId
    lease_id: LeaseId
    launch_key: LaunchKey
    address: str | None
    ssh_port: int
    host_key: str | None


async def take(
    connection: Connection, account: AccountName, *, now: datetime, again: datetime, limit: int
) -> Sequence[Untold]:
    """Machines of an account that have to be told. Nobody else takes them until `again`."""
    values = {"account": account, "now": now, "again": again, "limit": limit}
    return sorted(await read(connection, _TAKE, Untold, **values), key=lambda untold: untold.claim_id)


async def revoked_of(connection: Connection, claim_id: ClaimId, *, serials_max: int) -> Revoked | None:
    """What the machine of a claim has to refuse now; None when it is nothing."""
    return await read_one(connection, _REVOKED_OF, Revoked, id=claim_id, serials=serials_max)


async def told(connection: Connection, claim_id: ClaimId, revoked: Revoked, *, now: datetime) -> None:
    """Store that the machine of a claim knows these revocations."""
    await write(connection, _TOLD, id=claim_id, revoked=revoked.count, now=now)
