"""Queries on who asks: the owner of an API key, with the owner's roles and the key's limits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.subjects import subject_of
from control_plane.domain.access import HeldRole
from control_plane.domain.ids import ApiKeyId, OrganizationId, ProjectId, ServiceAccountId, UserId
from control_plane.domain.organization import OrganizationState
from control_plane.domain.subject import Subject, SubjectKind


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """Who owns a valid API key, and what the owner and the key may do."""

    organization_id: OrganizationId
    platform: bool
    organization_state: OrganizationState
    user_id: UserId | None
    service_account_id: ServiceAccountId | None
    api_key_id: ApiKeyId
    scopes: tuple[str, ...] | None
    project_ids: tuple[ProjectId, ...] | None
    expires_at: datetime | None
    roles: tuple[HeldRole, ...]
    is_session: bool
    """Whether the credential is a session, whose id is then in the place of the key's."""

    @property
    def subject(self) -> Subject:
        return subject_of(self.user_id, self.service_account_id)


# Functions that run with their owner's rights: before the key is known there is no tenant, so the filter would hide
# every row.
_OF_SECRET = text("SELECT p.*, false AS is_session FROM api_key_principal(:secret_sha256, :now) p")
_OF_KEYS = text("""
SELECT p.*, false AS is_session FROM api_key_principals(:ids, :now) p
UNION ALL SELECT p.*, true FROM session_principals(:ids, :now) p
""")
_NOTE_USES = text("""
UPDATE api_keys k SET last_used_at = used.at
FROM unnest(CAST(:ids AS uuid[]), CAST(:used_at AS timestamptz[])) AS used(id, at)
WHERE k.organization_id = :organization_id AND k.id = used.id
  AND (k.last_used_at IS NULL OR used.at >= k.last_used_at + make_interval(secs => :apart))
""")
# The locks make a revocation or a suspension wait until this transaction is over, so that neither overlooks the other.
_HOLD_KEY = text("SELECT id FROM api_keys WHERE id = :id AND revoked_at IS NULL FOR SHARE")
_HOLD_SESSION = text("SELECT id FROM sessions WHERE id = :id AND ended_at IS NULL FOR SHARE")
_HOLD_USER = text("SELECT id FROM users WHERE id = :id FOR SHARE")
_HOLD_SERVICE_ACCOUNT = text("SELECT id FROM service_accounts WHERE id = :id FOR SHARE")


async def of_secret(connection: Connection, secret_sha256: bytes, *, now: datetime) -> KeyOwner | None:
    """The owner of a key by the digest of its secret.

    None when the key is unknown, revoked or expired, or its owner may not act: one look-up answers all of these.
    """
    return await read_one(connection, _OF_SECRET, KeyOwner, secret_sha256=secret_sha256, now=now)


async def of_keys(connection: Connection, key_ids: Collection[ApiKeyId], *, now: datetime) -> list[KeyOwner]:
    """The owners of those of these keys and sessions, of any organization, that are valid."""
    return await read(connection, _OF_KEYS, KeyOwner, ids=list(key_ids), now=now)


async def hold(connection: Connection, key_id: ApiKeyId, subject: Subject) -> None:
    """Keep a key from being revoked or a session from being ended, and its owner from being suspended,
    until this transaction is over.
    """
    await read(connection, _HOLD_KEY, UUID, id=key_id)
    await read(connection, _HOLD_SESSION, UUID, id=key_id)
    is_user = subject.kind is SubjectKind.USER
    await read(connection, _HOLD_USER if is_user else _HOLD_SERVICE_ACCOUNT, UUID, id=subject.id)


async def note_uses(
    connection: Connection,
    organization_id: OrganizationId,
    uses: Mapping[ApiKeyId, datetime],
    *,
    apart_seconds: float,
) -> int:
    """Store when keys were last used, unless that is known to within `apart_seconds`. Returns how many changed."""
    values = {"ids": list(uses), "used_at": list(uses.values()), "apart": apart_seconds}
    return await write(connection, _NOTE_USES, organization_id=organization_id, **values)
