"""Queries on the keys that sign SSH certificates."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import OrganizationId, SecretId
from control_plane.domain.ssh_authority import SshAuthority, SshAuthorityState

_COLUMNS = "id, public_key, secret_id, state, made_at, signs_from, retired_at, removed_at"
_TRUSTED = text(f"""
SELECT {_COLUMNS} FROM ssh_authorities WHERE state <> '{SshAuthorityState.REMOVED}' ORDER BY made_at, id
""")
# One process at a time decides whether an authority is needed, and which state it gets.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('splitplane ssh authorities'))::text")
_INSERT = text("""
INSERT INTO ssh_authorities (id, public_key, secret_id, state, made_at, signs_from)
VALUES (:id, :public_key, :secret_id, :state, :now, CAST(:signs_from AS timestamptz))
""")
_OWNER = text("SELECT id FROM organizations WHERE platform ORDER BY created_at, id LIMIT 1")


async def trusted(connection: Connection) -> list[SshAuthority]:
    """The authorities that machines should trust, the oldest first."""
    return await read(connection, _TRUSTED, SshAuthority)


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
    await write(
        connection,
        _INSERT,
        id=authority_id,
        public_key=public_key,
        secret_id=secret_id,
        state=SshAuthorityState.SIGNING if signs else SshAuthorityState.NEXT,
        signs_from=now if signs else None,
        now=now,
    )


async def owner(connection: Connection) -> OrganizationId | None:
    """The organization that owns their secrets: the platform's; None while there is none."""
    return await read_one(connection, _OWNER, OrganizationId)
