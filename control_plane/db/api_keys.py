"""Queries on API keys."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.subjects import subject_values
from control_plane.domain.ids import ApiKeyId, OrganizationId, ServiceAccountId, UserId
from control_plane.domain.organization import OrganizationState
from control_plane.domain.permission import Role
from control_plane.domain.subject import Subject, SubjectKind


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
    """The owner of an API key, its role, and the state of its organization."""

    organization_id: OrganizationId
    user_id: UserId | None
    service_account_id: ServiceAccountId | None
    api_key_id: ApiKeyId
    role: Role
    state: OrganizationState

    @property
    def subject(self) -> Subject:
        if self.user_id is not None:
            return Subject(SubjectKind.USER, self.user_id)
        if self.service_account_id is not None:
            return Subject(SubjectKind.SERVICE_ACCOUNT, self.service_account_id)
        raise ValueError(f"the API key {self.api_key_id} has no subject")


_INSERT = text("""
INSERT INTO api_keys (id, organization_id, user_id, service_account_id, name, role, secret_sha256, hint, created_at)
VALUES (:id, :organization_id, :user_id, :service_account_id, :name, :role, :secret_sha256, :hint, :now)
""")
# A function that runs with its owner's rights: no tenant is set before the key is known, so the tenant filter would
# hide every row.
_OWNER = text("""
SELECT organization_id, user_id, service_account_id, api_key_id, role, state FROM api_key_owner(:secret_sha256)
""")
_PAGE = text("""
SELECT id, name, role, hint, created_at, revoked_at FROM api_keys
WHERE organization_id = :organization_id
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")
_COUNT = text("""
SELECT count(*) FROM api_keys WHERE organization_id = :organization_id AND revoked_at IS NULL
""")
_REVOKE = text("""
UPDATE api_keys SET revoked_at = :now
WHERE organization_id = :organization_id AND id = :id AND revoked_at IS NULL
""")
_REVOKE_ALL = text("""
UPDATE api_keys SET revoked_at = :now WHERE organization_id = :organization_id AND revoked_at IS NULL
""")
_ROLE = text("SELECT role FROM api_keys WHERE organization_id = :organization_id AND id = :id")
# The lock makes a revocation wait until this transaction is over, so that neither overlooks the other.
_HOLD = text("SELECT id FROM api_keys WHERE id = :id AND revoked_at IS NULL FOR SHARE")
# A function that runs with its owner's rights, because the keys belong to many tenants.
_REVOKED = text("SELECT revoked_api_keys(:ids)")


async def insert(
    connection: Connection,
    organization_id: OrganizationId,
    subject: Subject,
    key: ApiKey,
    *,
    secret_sha256: bytes,
) -> None:
    """Store a key by the digest of its secret; the secret itself is never stored."""
    await write(
        connection,
        _INSERT,
        id=key.id,
        organization_id=organization_id,
        **subject_values(subject),
        name=key.name,
        role=key.role.value,
        secret_sha256=secret_sha256,
        hint=key.hint,
        now=key.created_at,
    )


async def owner(connection: Connection, secret_sha256: bytes) -> Owner | None:
    """The owner of a key by the digest of its secret; None when the key is unknown or revoked.

    So it is when its organization is closing, closed or deleted.
    """
    return await read_one(connection, _OWNER, Owner, secret_sha256=secret_sha256)


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[ApiKey]:
    """Keys of the organization, oldest first, revoked ones too; `after` is creation time and id of one."""
    return await read(
        connection,
        _PAGE,
        ApiKey,
        organization_id=organization_id,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def count(connection: Connection, organization_id: OrganizationId) -> int:
    """How many keys of the organization are valid."""
    return await read_one(connection, _COUNT, int, organization_id=organization_id) or 0


async def revoke(
    connection: Connection, organization_id: OrganizationId, key_id: UUID, *, now: datetime
) -> bool:
    """Revoke a key. False when there is no such key, or it is revoked already."""
    return bool(await write(connection, _REVOKE, organization_id=organization_id, id=key_id, now=now))


async def revoke_all(connection: Connection, organization_id: OrganizationId, *, now: datetime) -> int:
    """Revoke every key of an organization. Returns how many were valid."""
    return await write(connection, _REVOKE_ALL, organization_id=organization_id, now=now)


async def role(connection: Connection, organization_id: OrganizationId, key_id: UUID) -> Role | None:
    """The role of a key of this organization; None when there is no such key."""
    return await read_one(connection, _ROLE, Role, organization_id=organization_id, id=key_id)


async def hold(connection: Connection, key_id: ApiKeyId) -> bool:
    """Keep a key from being revoked until this transaction is over. False when it is revoked already."""
    return bool(await read(connection, _HOLD, ApiKeyId, id=key_id))


async def revoked_among(connection: Connection, key_ids: Collection[ApiKeyId]) -> frozenset[ApiKeyId]:
    """Those of these keys, of any organization, that are revoked, or whose organization is closing or closed."""
    return frozenset(await read(connection, _REVOKED, ApiKeyId, ids=list(key_ids)))
