"""Queries on sealed secrets, and on the master keys that organizations bring. Only the reconciler's role reads what was
sealed.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db import data_keys
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import DataKeyId, OrganizationId, SecretId
from control_plane.domain.secret import KeyContext, MasterKey, Purpose, Sealed, WrappedKey

_INSERT = text("""
INSERT INTO secrets (id, organization_id, purpose, data_key_id, nonce, ciphertext, version, created_at)
VALUES (:id, :organization_id, :purpose, :data_key_id, :nonce, :ciphertext, :version, :now)
""")
_COLUMNS = """
s.id, s.nonce, s.ciphertext, s.version, k.id AS key_id, k.organization_id, k.purpose, k.master, k.wrapped
"""
_FROM = f"SELECT {_COLUMNS} FROM secrets s JOIN data_keys k ON k.id = s.data_key_id"
_GET = text(f"{_FROM} WHERE s.id = :id AND k.destroyed_at IS NULL")
_UNDER = text(f"{_FROM} WHERE k.id = :key_id AND k.destroyed_at IS NULL ORDER BY s.id LIMIT :limit")
# The data key of a secret that is gone is of no use; `rotate_keys` deletes it.
_DELETE = text("DELETE FROM secrets WHERE id = :id")
_MASTER = text("SELECT master FROM master_keys WHERE organization_id = :organization_id")
_SET_MASTER = text("""
INSERT INTO master_keys (organization_id, master, set_at) VALUES (:organization_id, :master, :now)
ON CONFLICT (organization_id) DO UPDATE SET master = excluded.master, set_at = excluded.set_at
""")
_UNSET_MASTER = text("DELETE FROM master_keys WHERE organization_id = :organization_id")


@dataclass(frozen=True, slots=True)
class _SealedRow:
    id: SecretId
    nonce: bytes
    ciphertext: bytes
    version: int
    key_id: DataKeyId
    organization_id: OrganizationId
    purpose: Purpose
    master: MasterKey
    wrapped: bytes

    def sealed(self) -> Sealed:
        context = KeyContext(self.organization_id, self.purpose)
        key = WrappedKey(self.key_id, context, self.master, self.wrapped)
        return Sealed(self.id, key, self.nonce, self.ciphertext, self.version)


async def insert(connection: Connection, sealed: Sealed, *, now: datetime) -> None:
    """Store a secret and the data key that was made for it."""
    await data_keys.insert(connection, sealed.key, now=now)
    await write(
        connection,
        _INSERT,
        id=sealed.id,
        organization_id=sealed.key.context.organization_id,
        purpose=sealed.key.context.purpose,
        data_key_id=sealed.key.id,
        nonce=sealed.nonce,
        ciphertext=sealed.ciphertext,
        version=sealed.version,
        now=now,
    )


async def get(connection: Connection, secret_id: SecretId) -> Sealed | None:
    """A sealed secret; None when there is none, or its data key was destroyed."""
    row = await read_one(connection, _GET, _SealedRow, id=secret_id)
    return None if row is None else row.sealed()


async def under(connection: Connection, key_id: DataKeyId, *, limit: int) -> list[Sealed]:
    """Secrets that are encrypted under a data key."""
    rows = await read(connection, _UNDER, _SealedRow, key_id=key_id, limit=limit)
    return [row.sealed() for row in rows]


async def delete(connection: Connection, secret_id: SecretId) -> None:
    await write(connection, _DELETE, id=secret_id)


async def master_of(connection: Connection, organization_id: OrganizationId) -> MasterKey | None:
    """The master key that an organization brings; None when it uses the installation's."""
    found = await read_one(connection, _MASTER, str, organization_id=organization_id)
    return None if found is None else MasterKey(found)


async def set_master(
    connection: Connection, organization_id: OrganizationId, master: MasterKey | None, *, now: datetime
) -> None:
    """Let an organization use a master key of its own, or with None the installation's again."""
    if master is None:
        await write(connection, _UNSET_MASTER, organization_id=organization_id)
    else:
        await write(connection, _SET_MASTER, organization_id=organization_id, master=master, now=now)
