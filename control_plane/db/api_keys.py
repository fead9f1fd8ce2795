"""Queries on API keys."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import issued
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.subjects import subject_of, subject_values
from control_plane.domain.api_key import ApiKey
from control_plane.domain.ids import (
    ApiKeyId,
    OrganizationId,
    Prefix,
    ProjectId,
    ServiceAccountId,
    UserId,
    on_wire,
)
from control_plane.domain.subject import Subject


@dataclass(frozen=True, slots=True)
class _Row:
    id: ApiKeyId
    user_id: UserId | None
    service_account_id: ServiceAccountId | None
    name: str
    hint: str
    scopes: tuple[str, ...] | None
    project_ids: tuple[ProjectId, ...] | None
    rotates: ApiKeyId | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    @property
    def key(self) -> ApiKey:
        return ApiKey(
            id=self.id,
            subject=subject_of(self.user_id, self.service_account_id),
            name=self.name,
            hint=self.hint,
            scopes=self.scopes,
            project_ids=self.project_ids,
            rotates=self.rotates,
            created_at=self.created_at,
            expires_at=self.expires_at,
            revoked_at=self.revoked_at,
            last_used_at=self.last_used_at,
        )


_COLUMNS = """id, user_id, service_account_id, name, hint, scopes, project_ids, rotates, created_at, expires_at,
  revoked_at, last_used_at"""
_INSERT = text("""
INSERT INTO api_keys (id, organization_id, user_id, service_account_id, name, secret_sha256, hint, scopes, project_ids,
  rotates, created_at, expires_at)
VALUES (:id, :organization_id, :user_id, :service_account_id, :name, :secret_sha256, :hint, :scopes, :project_ids,
  :rotates, :now, :expires_at)
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM api_keys
WHERE organization_id = :organization_id
  AND (CAST(:of_all AS boolean) OR user_id = :user_id OR service_account_id = :service_account_id)
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")
_COUNT = text("""
SELECT count(*) FROM api_keys
WHERE organization_id = :organization_id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
""")
_LOCK = text(
    f"SELECT {_COLUMNS} FROM api_keys WHERE organization_id = :organization_id AND id = :id FOR UPDATE"
)
_REVOKE = text("""
UPDATE api_keys SET revoked_at = :now
WHERE organization_id = :organization_id AND id = :id AND revoked_at IS NULL
""")
_REVOKE_ALL = text("""
UPDATE api_keys SET revoked_at = :now WHERE organization_id = :organization_id AND revoked_at IS NULL
""")
_REVOKE_ALL_OF = text("""
UPDATE api_keys SET revoked_at = :now
WHERE organization_id = :organization_id AND (user_id = :user_id OR service_account_id = :service_account_id)
  AND revoked_at IS NULL
""")
_EXPIRE = text("""
UPDATE api_keys SET expires_at = :at WHERE organization_id = :organization_id AND id = :id
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
        **subject_values(key.subject),
        name=key.name,
        secret_sha256=secret_sha256,
        hint=key.hint,
        scopes=None if key.scopes is None else list(key.scopes),
        project_ids=None if key.project_ids is None else list(key.project_ids),
        rotates=key.rotates,
        now=key.created_at,
        expires_at=key.expires_at,
    )


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    of: Subject | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[ApiKey]:
    """Keys of one subject, or of the organization (None), oldest first, with those that have ended.

    `after` is creation time and id of one.
    """
    rows = await read(
        connection,
        _PAGE,
        _Row,
        organization_id=organization_id,
        of_all=of is None,
        **(subject_values(of) if of else {"user_id": None, "service_account_id": None}),
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )
    return [row.key for row in rows]


async def count(connection: Connection, organization_id: OrganizationId, *, now: datetime) -> int:
    """How many keys of the organization are valid."""
    return await read_one(connection, _COUNT, int, organization_id=organization_id, now=now) or 0


async def lock(connection: Connection, organization_id: OrganizationId, key_id: UUID) -> ApiKey | None:
    """One key of this organization, locked for this transaction; None when there is none."""
    row = await read_one(connection, _LOCK, _Row, organization_id=organization_id, id=key_id)
    return row.key if row else None


async def revoke(
    connection: Connection, organization_id: OrganizationId, key_id: UUID, *, now: datetime
) -> bool:
    """Revoke a key, with the certificates and kubeconfigs that it asked for. False when there is no valid one."""
    revoked = bool(await write(connection, _REVOKE, organization_id=organization_id, id=key_id, now=now))
    if revoked:
        named = [on_wire(Prefix.API_KEY, key_id)]
        await issued.revoke_of_credentials(connection, organization_id, named, now=now)
    return revoked


async def revoke_all(connection: Connection, organization_id: OrganizationId, *, now: datetime) -> int:
    """Revoke every key of an organization. Returns how many were valid."""
    return await write(connection, _REVOKE_ALL, organization_id=organization_id, now=now)


async def revoke_all_of(
    connection: Connection, organization_id: OrganizationId, subject: Subject, *, now: datetime
) -> int:
    """Revoke every key of a subject. Returns how many."""
    values = {"organization_id": organization_id, **subject_values(subject), "now": now}
    return await write(connection, _REVOKE_ALL_OF, **values)


async def expire(
    connection: Connection, organization_id: OrganizationId, key_id: ApiKeyId, *, at: datetime, now: datetime
) -> None:
    """Let a key end at a moment."""
    await write(connection, _EXPIRE, organization_id=organization_id, id=key_id, at=at)
    named = on_wire(Prefix.API_KEY, key_id)
    await issued.revoke_beyond(connection, organization_id, named, ends_at=at, now=now)
