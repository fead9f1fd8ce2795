"""Queries on revoked SSH certificates whose machines do not know it yet.

What the machine of a claim was told last is stored with the claim, as a digest of the revoked serials. Whatever differs
is told, so nothing depends on the order in which revocations are committed, and a machine that was away catches up.
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
# Every certificate of its lease is over then.
_TAKE = text(f"""
WITH over AS (
  SELECT c.id AS claim_id, s.serial FROM ssh_certificates s JOIN claims c ON c.lease_id = s.lease_id
  WHERE c.ended_at IS NULL AND s.revoked_at IS NOT NULL AND s.signed_at IS NOT NULL
  UNION ALL
  SELECT c.id, s.serial FROM machines m JOIN claims c ON c.machine_id = m.id
    JOIN ssh_certificates s ON s.lease_id = c.lease_id
  WHERE c.ended_at IS NOT NULL AND {_LIVES} AND s.signed_at IS NOT NULL
), revoked AS (
  SELECT claim_id, md5(string_agg(serial::text, ',' ORDER BY serial)) AS digest
  FROM over GROUP BY claim_id
), taken AS (
  SELECT c.id, m.launch_key, m.address, m.ssh_port, m.host_key
  FROM revoked r JOIN claims c ON c.id = r.claim_id JOIN machines m ON m.id = c.machine_id
  WHERE m.account = :account AND {_LIVES}
    AND c.admitted_at IS NOT NULL AND c.ssh_revoked IS DISTINCT FROM r.digest
    AND (c.ssh_revoked_due_at IS NULL OR c.ssh_revoked_due_at <= :now)
  ORDER BY c.ssh_revoked_due_at NULLS FIRST, c.id LIMIT :limit FOR UPDATE OF c SKIP LOCKED
)
UPDATE claims c SET ssh_revoked_due_at = :again FROM taken WHERE c.id = taken.id
RETURNING c.id AS claim_id, c.lease_id, taken.launch_key, taken.address, taken.ssh_port, taken.host_key
""")
_REVOKED_OF = text("""
SELECT array_agg(s.serial ORDER BY s.serial) AS serials,
       md5(string_agg(s.serial::text, ',' ORDER BY s.serial)) AS digest
FROM claims c JOIN ssh_certificates s ON s.lease_id = c.lease_id
WHERE c.id = :id AND s.signed_at IS NOT NULL AND (c.ended_at IS NOT NULL OR s.revoked_at IS NOT NULL)
HAVING count(*) > 0
""")
_TOLD = text("UPDATE claims SET ssh_revoked = :digest, ssh_revoked_due_at = NULL WHERE id = :id")


@dataclass(frozen=True, slots=True)
class Revoked:
    """All serials that the machine of a claim has to refuse."""

    serials: tuple[int, ...]
    digest: str


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
    return await read(connection, _TAKE, Untold, account=account, now=now, again=again, limit=limit)


async def revoked_of(connection: Connection, claim_id: ClaimId) -> Revoked | None:
    """What the machine of a claim has to refuse now; None when it is nothing."""
    return await read_one(connection, _REVOKED_OF, Revoked, id=claim_id)


async def told(connection: Connection, claim_id: ClaimId, revoked: Revoked) -> None:
    """Store that the machine of a claim knows these revocations."""
    await write(connection, _TOLD, id=claim_id, digest=revoked.digest)
