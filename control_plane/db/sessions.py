"""Queries on sessions and their refresh tokens."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import issued
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import OrganizationId, Prefix, SessionId, UserId, on_wire
from control_plane.domain.session import Presented, Session, SessionEnd

_COLUMNS = "id, user_id, client, address, created_at, last_used_at, expires_at, ended_at, ended_why"
_INSERT = text("""
INSERT INTO sessions (id, organization_id, user_id, client, address, created_at, last_used_at, expires_at)
VALUES (:id, :organization_id, :user_id, :client, :address, :created_at, :last_used_at, :expires_at)
""")
_GET = f"SELECT {_COLUMNS} FROM sessions WHERE organization_id = :organization_id AND id = :id"
_SHOW = text(_GET)
_LOCK = text(f"{_GET} FOR UPDATE")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM sessions
WHERE organization_id = :organization_id AND (CAST(:user_id AS uuid) IS NULL OR user_id = :user_id)
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")
_USED = text("UPDATE sessions SET last_used_at = :now WHERE organization_id = :organization_id AND id = :id")
_END = """
UPDATE sessions SET ended_at = :now, ended_why = :why WHERE organization_id = :organization_id AND ended_at IS NULL
"""
_END_ONE = text(f"{_END} AND id = :id")
_END_ALL_OF = text(f"{_END} AND user_id = :user_id")
_END_ALL = text(_END)
_INSERT_TOKEN = text("""
INSERT INTO refresh_tokens (secret_sha256, organization_id, session_id, replaces_sha256, made_at)
VALUES (:sha256, :organization_id, :session_id, :replaces, :now)
""")
_SESSION_OF = text("""
SELECT session_id FROM refresh_tokens WHERE organization_id = :organization_id AND secret_sha256 = :sha256
""")
_PRESENTED = text("""
SELECT t.replaced_at,
  EXISTS (SELECT FROM refresh_tokens n WHERE n.organization_id = t.organization_id
            AND n.replaces_sha256 = t.secret_sha256 AND n.replaced_at IS NOT NULL) AS successor_used,
  EXISTS (SELECT FROM refresh_tokens o WHERE o.organization_id = t.organization_id
            AND o.replaces_sha256 = t.replaces_sha256 AND o.secret_sha256 <> t.secret_sha256
            AND o.replaced_at IS NOT NULL) AS sibling_used
FROM refresh_tokens t WHERE t.organization_id = :organization_id AND t.secret_sha256 = :sha256
""")
_REPLACED = text("""
UPDATE refresh_tokens SET replaced_at = :now
WHERE organization_id = :organization_id AND secret_sha256 = :sha256 AND replaced_at IS NULL
""")
_FORGET_TOKENS = text("""
DELETE FROM refresh_tokens WHERE secret_sha256 IN (
  SELECT secret_sha256 FROM refresh_tokens WHERE replaced_at < :before ORDER BY replaced_at LIMIT :limit)
""")
_OLD = "SELECT id FROM sessions WHERE expires_at < :before ORDER BY expires_at LIMIT :limit"
# With its last token; those that were replaced went before.
_FORGET = text(f"""
WITH old AS ({_OLD}), tokens AS (DELETE FROM refresh_tokens t USING old WHERE t.session_id = old.id)
DELETE FROM sessions s USING old WHERE s.id = old.id
""")
_HOLD = text("SELECT id FROM sessions WHERE id = :id AND ended_at IS NULL FOR SHARE")


async def insert(connection: Connection, organization_id: OrganizationId, session: Session) -> None:
    await write(
        connection,
        _INSERT,
        id=session.id,
        organization_id=organization_id,
        user_id=session.user_id,
        client=session.client,
        address=session.address,
        created_at=session.created_at,
        last_used_at=session.last_used_at,
        expires_at=session.expires_at,
    )


async def get(
    connection: Connection, organization_id: OrganizationId, session_id: SessionId, *, lock: bool = False
) -> Session | None:
    return await read_one(
        connection, _LOCK if lock else _SHOW, Session, organization_id=organization_id, id=session_id
    )


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    of: UserId | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Session]:
    """The sessions of a user, or with None of the organization, ended ones too, oldest first."""
    return await read(
        connection,
        _PAGE,
        Session,
        organization_id=organization_id,
        user_id=of,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def used(
    connection: Connection, organization_id: OrganizationId, session_id: SessionId, *, now: datetime
) -> None:
    await write(connection, _USED, organization_id=organization_id, id=session_id, now=now)


async def end(
    connection: Connection,
    organization_id: OrganizationId,
    session_id: SessionId,
    why: SessionEnd,
    *,
    now: datetime,
) -> bool:
    """End a session, and revoke the certificates and kubeconfigs that it asked for. False when none was open."""
    values = {"id": session_id, "why": why.value, "now": now}
    ended = bool(await write(connection, _END_ONE, organization_id=organization_id, **values))
    if ended:
        named = [on_wire(Prefix.SESSION, session_id)]
        await issued.revoke_of_credentials(connection, organization_id, named, now=now)
    return ended


async def end_all_of(
    connection: Connection,
    organization_id: OrganizationId,
    user_id: UserId,
    why: SessionEnd,
    *,
    now: datetime,
) -> int:
    """End all sessions of a user."""
    values = {"user_id": user_id, "why": why.value, "now": now}
    return await write(connection, _END_ALL_OF, organization_id=organization_id, **values)


async def end_all(
    connection: Connection, organization_id: OrganizationId, why: SessionEnd, *, now: datetime
) -> int:
    """End all sessions of an organization."""
    return await write(connection, _END_ALL, organization_id=organization_id, why=why.value, now=now)


async def hold(connection: Connection, session_id: SessionId) -> None:
    """Keep a session from being ended until this transaction is over."""
    await read(connection, _HOLD, UUID, id=session_id)


@dataclass(frozen=True, slots=True)
class NewToken:
    """The digest of a refresh token that is handed out."""

    sha256: bytes
    session_id: SessionId
    replaces: bytes | None = None
    """The digest of the one that it was given for; None for the first one of a session."""


async def insert_token(
    connection: Connection, organization_id: OrganizationId, token: NewToken, *, now: datetime
) -> None:
    await write(
        connection,
        _INSERT_TOKEN,
        sha256=token.sha256,
        organization_id=organization_id,
        session_id=token.session_id,
        replaces=token.replaces,
        now=now,
    )


async def session_of_token(
    connection: Connection, organization_id: OrganizationId, sha256: bytes
) -> SessionId | None:
    """The session of a refresh token, used or not; None when there is no such token."""
    found = await read_one(connection, _SESSION_OF, UUID, organization_id=organization_id, sha256=sha256)
    return None if found is None else SessionId(found)


async def presented(
    connection: Connection, organization_id: OrganizationId, sha256: bytes
) -> Presented | None:
    """A refresh token as somebody presents it. Its session has to be locked."""
    return await read_one(connection, _PRESENTED, Presented, organization_id=organization_id, sha256=sha256)


async def replaced(
    connection: Connection, organization_id: OrganizationId, sha256: bytes, *, now: datetime
) -> None:
    """Note that a refresh token was exchanged for another one, unless it was before."""
    await write(connection, _REPLACED, organization_id=organization_id, sha256=sha256, now=now)


async def forget_tokens(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete refresh tokens that were replaced before this time, oldest first. Returns how many."""
    return await write(connection, _FORGET_TOKENS, before=before, limit=limit)


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete sessions that would have lasted until before this time, with their tokens. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)
