"""Queries on the keys that sign SSH certificates, and on which of them machines trust."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import AccountName, LaunchKey, MachineId, OrganizationId, SecretId
from control_plane.domain.machine import MachineState
from control_plane.domain.ssh_authority import SshAuthority, SshAuthorityState

WITHDRAWN_MAX = 20
"""A provider is told of that many authorities that are trusted no more; rotations are months apart."""
_COLUMNS = "id, public_key, secret_id, state, made_at, signs_from, retired_at, removed_at"
_LIVE = text(f"""
SELECT {_COLUMNS} FROM ssh_authorities WHERE state <> '{SshAuthorityState.REMOVED}' ORDER BY made_at, id
""")
_EVERY = text(f"SELECT {_COLUMNS} FROM ssh_authorities ORDER BY made_at, id")
# One process at a time decides whether an authority is needed, and which state it gets.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('splitplane ssh authorities'))::text")
_WITHDRAWN = text(f"""
SELECT public_key FROM ssh_authorities WHERE state IN ('{SshAuthorityState.DISTRUSTED}', '{SshAuthorityState.REMOVED}')
ORDER BY made_at DESC, id DESC LIMIT {WITHDRAWN_MAX}
""")
_INSERT = text(f"""
INSERT INTO ssh_authorities (id, public_key, secret_id, state, made_at)
VALUES (:id, :public_key, :secret_id, '{SshAuthorityState.NEXT}', :now)
""")
_MOVE = text(f"""
UPDATE ssh_authorities SET state = :after,
  signs_from = CASE WHEN :after = '{SshAuthorityState.SIGNING}' THEN :now ELSE signs_from END,
  retired_at = CASE WHEN :after IN ('{SshAuthorityState.RETIRED}', '{SshAuthorityState.DISTRUSTED}')
                    THEN :now ELSE retired_at END,
  removed_at = CASE WHEN :after = '{SshAuthorityState.REMOVED}' THEN :now END,
  secret_id = CASE WHEN :after = '{SshAuthorityState.REMOVED}' THEN NULL ELSE secret_id END
WHERE id = :id AND state = :before
""")
_OWNER = text("SELECT id FROM organizations WHERE platform ORDER BY created_at, id LIMIT 1")
_STATE_OF = text("SELECT state FROM ssh_authorities WHERE public_key = :public_key FOR SHARE")
# A machine that boots trusts what was in its user data, and is told at its bootstrap. Suspect ones are told too, if
# they can be reached.
_ON_ITS_WAY = among("state", (MachineState.LAUNCHING, MachineState.BOOTING))
_REACHED = among("state", (MachineState.BOOTSTRAPPING, MachineState.VERIFIED))
_BEHIND = f"{_REACHED} AND ssh_trust <> :trust"
_COUNT_BEHIND = text(
    f"""
SELECT (SELECT count(*) FROM machines WHERE ({_ON_ITS_WAY} OR {_REACHED}) AND ssh_trust <> :trust)
     + (SELECT count(*) FROM server_hosts WHERE ssh_trust IS DISTINCT FROM :trust) AS behind
"""
)
_ORDERED = text("UPDATE machines SET ssh_trust = :trust WHERE id = ANY(:ids)")
_TAKE_BEHIND = text(f"""
WITH behind AS (
UPDATE machines SET ssh_trust_due_at = :again WHERE id = ANY(ARRAY(
  SELECT id FROM machines WHERE account = :account AND {_BEHIND}
    AND (ssh_trust_due_at IS NULL OR ssh_trust_due_at <= :now)
  ORDER BY ssh_trust_due_at NULLS FIRST, id LIMIT :limit FOR UPDATE SKIP LOCKED
)) RETURNING id, launch_key, address, ssh_port, host_key)
SELECT id, launch_key, address, ssh_port, host_key FROM behind ORDER BY id
""")
_TOLD = text("UPDATE machines SET ssh_trust = :trust, ssh_trust_due_at = NULL WHERE id = :id")


@dataclass(frozen=True, slots=True)
class Behind:
    """A machine that trusts other authorities than it should."""

    id: MachineId
    launch_key: LaunchKey
    address: str | None
    ssh_port: int
    host_key: str | None


async def live(connection: Connection) -> list[SshAuthority]:
    """The authorities that were not removed, the oldest first."""
    return await read(connection, _LIVE, SshAuthority)


async def every(connection: Connection) -> list[SshAuthority]:
    """Every authority that ever was, the oldest first."""
    return await read(connection, _EVERY, SshAuthority)


async def withdrawn(connection: Connection) -> list[str]:
    """The public keys of the latest authorities that are trusted no more; a provider may still have them."""
    return await read(connection, _WITHDRAWN, str)


async def lock(connection: Connection) -> None:
    await read(connection, _LOCK, str)


async def insert(
    connection: Connection,
    authority_id: UUID,
    public_key: str,
    secret_id: SecretId,
    *,
    signs: bool,
    now: datetime,
) -> None:
    """Store an authority that signs at once, or one that will sign next."""
    values = {"id": authority_id, "now": now}
    await write(connection, _INSERT, **values, public_key=public_key, secret_id=secret_id)
    if signs:
        await write(
            connection, _MOVE, **values, before=SshAuthorityState.NEXT, after=SshAuthorityState.SIGNING
        )


async def move(
    connection: Connection, authority: SshAuthority, after: SshAuthorityState, *, now: datetime
) -> bool:
    """Change an authority's state. False when it has another one than was read."""
    values = {"id": authority.id, "before": authority.state, "after": after, "now": now}
    return bool(await write(connection, _MOVE, **values))


async def owner(connection: Connection) -> OrganizationId | None:
    """The organization that owns their secrets: the platform's; None while there is none."""
    return await read_one(connection, _OWNER, OrganizationId)


async def count_behind(connection: Connection, trust: str) -> int:
    """How many machines and server hosts trust other authorities than those with this fingerprint."""
    return await read_one(connection, _COUNT_BEHIND, int, trust=trust) or 0


async def take_behind(
    connection: Connection, account: AccountName, trust: str, *, now: datetime, again: datetime, limit: int
) -> Sequence[Behind]:
    """Machines of an account that have to be told. Nobody else takes them until `again`."""
    values = {"account": account, "trust": trust, "now": now, "again": again, "limit": limit}
    return await read(connection, _TAKE_BEHIND, Behind, **values)


async def may_sign(connection: Connection, public_key: str) -> bool:
    """Whether an authority signs now, and will until this transaction ends.

    One that is not stored belongs to simulated machines, and is never replaced.
    """
    state = await read_one(connection, _STATE_OF, SshAuthorityState, public_key=public_key)
    return state in {None, SshAuthorityState.SIGNING}


async def ordered(connection: Connection, machine_ids: Collection[MachineId], trust: str) -> None:
    """Store that these machines are ordered with user data that trusts the authorities with this fingerprint."""
    await write(connection, _ORDERED, ids=list(machine_ids), trust=trust)


async def told(connection: Connection, machine_id: MachineId, trust: str) -> None:
    """Store that a machine was told to trust the authorities with this fingerprint."""
    await write(connection, _TOLD, id=machine_id, trust=trust)
