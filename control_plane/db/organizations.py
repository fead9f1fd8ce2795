"""Queries on organizations: their standing, API keys and SSH keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.admission import Standing
from control_plane.domain.ids import ApiKeyId, OrganizationId, SshKeyId
from control_plane.domain.money import Nano


@dataclass(frozen=True, slots=True)
class Organization:
    id: OrganizationId
    name: str
    suspended: bool
    gpu_quota: int
    gpus_held: int
    posted_nano: Nano
    held_nano: Nano
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: ApiKeyId
    name: str
    operator: bool
    hint: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class SshKey:
    id: SshKeyId
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose an API key is."""

    organization_id: OrganizationId
    api_key_id: ApiKeyId
    operator: bool


_INSERT = text("""
WITH made AS (
  INSERT INTO organizations (id, name, created_at) VALUES (:id, :name, :now) ON CONFLICT (name) DO NOTHING RETURNING id
)
INSERT INTO standings (organization_id, gpu_quota) SELECT id, :gpu_quota FROM made
""")
_GET = text("""
SELECT o.id, o.name, o.suspended, s.gpu_quota, s.gpus_held, s.posted_nano, s.held_nano, o.created_at
FROM organizations o JOIN standings s ON s.organization_id = o.id WHERE o.id = :id
""")
_BY_NAME = text("SELECT id FROM organizations WHERE name = :name")
_STANDING = text("""
SELECT o.suspended, s.gpu_quota, s.gpus_held, s.posted_nano - s.held_nano AS available_nano
FROM standings s JOIN organizations o ON o.id = s.organization_id WHERE s.organization_id = :id
""")
_LOCK_STANDING = text(_STANDING.text + " FOR UPDATE OF s")


async def insert(
    connection: AsyncConnection, organization_id: OrganizationId, name: str, *, gpu_quota: int, now: datetime
) -> bool:
    """False when the name is taken."""
    values = {"id": organization_id, "name": name, "gpu_quota": gpu_quota, "now": now}
    result = await connection.execute(_INSERT, values)
    return bool(result.rowcount)


async def get(connection: AsyncConnection, organization_id: OrganizationId) -> Organization | None:
    found = await rows(connection, _GET, id=organization_id)
    if not found:
        return None
    row = found[0]
    return Organization(
        id=OrganizationId(row.id),
        name=row.name,
        suspended=row.suspended,
        gpu_quota=row.gpu_quota,
        gpus_held=row.gpus_held,
        posted_nano=Nano(row.posted_nano),
        held_nano=Nano(row.held_nano),
        created_at=row.created_at,
    )


async def named(connection: AsyncConnection, name: str) -> OrganizationId | None:
    found = await rows(connection, _BY_NAME, name=name)
    return OrganizationId(found[0].id) if found else None


async def standing(
    connection: AsyncConnection, organization_id: OrganizationId, *, lock: bool
) -> Standing | None:
    """The facts admission decides on. With `lock`, nothing else spends for this organization meanwhile."""
    found = await rows(connection, _LOCK_STANDING if lock else _STANDING, id=organization_id)
    if not found:
        return None
    row = found[0]
    return Standing(
        suspended=row.suspended,
        gpu_quota=row.gpu_quota,
        gpus_held=row.gpus_held,
        available_nano=Nano(row.available_nano),
    )


_INSERT_KEY = text("""
INSERT INTO api_keys (id, organization_id, name, operator, secret_sha256, hint, created_at)
VALUES (:id, :organization_id, :name, :operator, :secret_sha256, :hint, :now)
""")
# A function of the owner's rights: before the key is known, no tenant is set and the filter shows nothing.
_OWNER = text("SELECT organization_id, api_key_id, operator FROM api_key_owner(:secret_sha256)")
_KEYS = text("""
SELECT id, name, operator, hint, created_at, revoked_at FROM api_keys
WHERE organization_id = :organization_id ORDER BY created_at, id
""")
_REVOKE = text("""
UPDATE api_keys SET revoked_at = :now
WHERE organization_id = :organization_id AND id = :id AND revoked_at IS NULL
""")


async def insert_api_key(
    connection: AsyncConnection,
    key_id: ApiKeyId,
    organization_id: OrganizationId,
    *,
    name: str,
    operator: bool,
    secret_sha256: bytes,
    hint: str,
    now: datetime,
) -> None:
    """Store a key by the digest of its secret; the secret itself is never stored."""
    values = {
        "id": key_id,
        "organization_id": organization_id,
        "name": name,
        "operator": operator,
        "secret_sha256": secret_sha256,
        "hint": hint,
        "now": now,
    }
    await connection.execute(_INSERT_KEY, values)


async def owner(connection: AsyncConnection, secret_sha256: bytes) -> Owner | None:
    found = await rows(connection, _OWNER, secret_sha256=secret_sha256)
    if not found:
        return None
    row = found[0]
    return Owner(OrganizationId(row.organization_id), ApiKeyId(row.api_key_id), row.operator)


def _api_key(row: Any) -> ApiKey:
    return ApiKey(ApiKeyId(row.id), row.name, row.operator, row.hint, row.created_at, row.revoked_at)


async def api_keys(connection: AsyncConnection, organization_id: OrganizationId) -> list[ApiKey]:
    return [_api_key(row) for row in await rows(connection, _KEYS, organization_id=organization_id)]


async def revoke_api_key(
    connection: AsyncConnection, organization_id: OrganizationId, key_id: UUID, *, now: datetime
) -> bool:
    result = await connection.execute(_REVOKE, {"organization_id": organization_id, "id": key_id, "now": now})
    return bool(result.rowcount)


_INSERT_SSH = text("""
INSERT INTO ssh_keys (id, organization_id, name, public_key, fingerprint, created_at)
VALUES (:id, :organization_id, :name, :public_key, :fingerprint, :now)
ON CONFLICT (organization_id, name) DO NOTHING
""")
_SSH_KEYS = text("""
SELECT id, name, public_key, fingerprint, created_at FROM ssh_keys
WHERE organization_id = :organization_id ORDER BY created_at, id
""")
_SSH_KEYS_BY_ID = text("""
SELECT id, name, public_key, fingerprint, created_at FROM ssh_keys
WHERE organization_id = :organization_id AND id = ANY(:ids)
""")
_DELETE_SSH = text("DELETE FROM ssh_keys WHERE organization_id = :organization_id AND id = :id")


def _ssh_key(row: Any) -> SshKey:
    return SshKey(SshKeyId(row.id), row.name, row.public_key, row.fingerprint, row.created_at)


async def insert_ssh_key(connection: AsyncConnection, organization_id: OrganizationId, key: SshKey) -> bool:
    """False when the organization already has a key of that name."""
    values = {
        "id": key.id,
        "organization_id": organization_id,
        "name": key.name,
        "public_key": key.public_key,
        "fingerprint": key.fingerprint,
        "now": key.created_at,
    }
    result = await connection.execute(_INSERT_SSH, values)
    return bool(result.rowcount)


async def ssh_keys(
    connection: AsyncConnection, organization_id: OrganizationId, *, ids: Sequence[UUID] | None = None
) -> list[SshKey]:
    """All keys of the organization, or those of `ids` that are its own."""
    if ids is None:
        found = await rows(connection, _SSH_KEYS, organization_id=organization_id)
    else:
        found = await rows(connection, _SSH_KEYS_BY_ID, organization_id=organization_id, ids=list(ids))
    return [_ssh_key(row) for row in found]


async def delete_ssh_key(connection: AsyncConnection, organization_id: OrganizationId, key_id: UUID) -> bool:
    result = await connection.execute(_DELETE_SSH, {"organization_id": organization_id, "id": key_id})
    return bool(result.rowcount)
