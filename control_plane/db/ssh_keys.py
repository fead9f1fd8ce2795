"""Queries on customers' SSH keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.ids import OrganizationId, SshKeyId


@dataclass(frozen=True, slots=True)
class SshKey:
    id: SshKeyId
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


_INSERT = text("""
INSERT INTO ssh_keys (id, organization_id, name, public_key, fingerprint, created_at)
VALUES (:id, :organization_id, :name, :public_key, :fingerprint, :now)
""")
_COLUMNS = "id, name, public_key, fingerprint, created_at"
_ALL = text(
    f"SELECT {_COLUMNS} FROM ssh_keys WHERE organization_id = :organization_id ORDER BY created_at, id"
)
_BY_ID = text(f"""
SELECT {_COLUMNS} FROM ssh_keys WHERE organization_id = :organization_id AND id = ANY(:ids) ORDER BY created_at, id
""")
_DELETE = text("DELETE FROM ssh_keys WHERE organization_id = :organization_id AND id = :id")


async def insert(connection: Connection, organization_id: OrganizationId, key: SshKey) -> None:
    """Store a key. The caller holds the standing's lock, and has seen that its name and fingerprint are new."""
    await write(
        connection,
        _INSERT,
        id=key.id,
        organization_id=organization_id,
        name=key.name,
        public_key=key.public_key,
        fingerprint=key.fingerprint,
        now=key.created_at,
    )


async def every(connection: Connection, organization_id: OrganizationId) -> list[SshKey]:
    """All keys of the organization, oldest first."""
    return await read(connection, _ALL, SshKey, organization_id=organization_id)


async def of_ids(
    connection: Connection, organization_id: OrganizationId, ids: Sequence[UUID]
) -> list[SshKey]:
    """Those of `ids` that are keys of this organization."""
    return await read(connection, _BY_ID, SshKey, organization_id=organization_id, ids=list(ids))


async def delete(connection: Connection, organization_id: OrganizationId, key_id: UUID) -> bool:
    """Delete a key. False when the organization has no such key."""
    return bool(await write(connection, _DELETE, organization_id=organization_id, id=key_id))
