"""Queries on API keys."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import ApiKeyId, OrganizationId
from control_plane.domain.permission import Role


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: ApiKeyId
    name: str
    role: Role
    hint: str
    """The first and last characters of the secret."""
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of an API key, and its role."""

    organization_id: OrganizationId
    api_key_id: ApiKeyId
    role: Role


_INSERT = text("""
INSERT INTO api_keys (id, organization_id, name, role, secret_sha256, hint, created_at)
VALUES (:id, :organization_id, :name, :role, :secret_sha256, :hint, :now)
""")
# A function that runs with its owner's rights: no tenant is set before the key is known, so the tenant filter would
# hide every row.
_OWNER = text("SELECT organization_id, api_key_id, role FROM api_key_owner(:secret_sha256)")
_ALL = text("""
SELECT id, name, role, hint, created_at, revoked_at FROM api_keys
WHERE organization_id = :organization_id ORDER BY created_at, id
""")
_REVOKE = text("""
UPDATE api_keys SET revoked_at = :now
WHERE organization_id = :organization_id AND id = :id AND revoked_at IS NULL
""")


async def insert(
    connection: Connection, organization_id: OrganizationId, key: ApiKey, *, secret_sha256: bytes
) -> None:
    """Store a key by the digest of its secret; the secret itself is never stored."""
    await write(
        connection,
        _INSERT,
        id=key.id,
        organization_id=organization_id,
        name=key.name,
        role=key.role.value,
        secret_sha256=secret_sha256,
        hint=key.hint,
        now=key.created_at,
    )


async def owner(connection: Connection, secret_sha256: bytes) -> Owner | None:
    """The owner of a key by the digest of its secret; None when the key is unknown or revoked."""
    return await read_one(connection, _OWNER, Owner, secret_sha256=secret_sha256)


async def every(connection: Connection, organization_id: OrganizationId) -> list[ApiKey]:
    """All keys of the organization, oldest first, revoked ones too."""
    return await read(connection, _ALL, ApiKey, organization_id=organization_id)


async def revoke(
    connection: Connection, organization_id: OrganizationId, key_id: UUID, *, now: datetime
) -> bool:
    """Revoke a key. False when there is no such key, or it is revoked already."""
    return bool(await write(connection, _REVOKE, organization_id=organization_id, id=key_id, now=now))
