"""Queries on the data keys of secrets: new ones, their rotation, and their destruction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import work
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.actor import Actor
from control_plane.domain.ids import DataKeyId, OrganizationId
from control_plane.domain.secret import KeyContext, MasterKey, Purpose, Sealed, WrappedKey

_INSERT = text("""
INSERT INTO data_keys (id, organization_id, purpose, master, wrapped, made_at, wrapped_at, due_at)
VALUES (:id, :organization_id, :purpose, :master, :wrapped, :now, :now, :now)
""")


async def insert(connection: Connection, key: WrappedKey, *, now: datetime) -> None:
    """Store a data key that was just made."""
    await write(
        connection,
        _INSERT,
        id=key.id,
        organization_id=key.context.organization_id,
        purpose=key.context.purpose,
        master=key.master,
        wrapped=key.wrapped,
        now=now,
    )


# Rotation


@dataclass(frozen=True, slots=True)
class DueKey:
    """A data key that a worker holds, because it has to be wrapped anew or replaced."""

    key: WrappedKey
    newest: MasterKey
    """The master key that its organization has now."""
    made_at: datetime
    tries: int


@dataclass(frozen=True, slots=True)
class _DueRow:
    id: DataKeyId
    organization_id: OrganizationId
    purpose: Purpose
    master: MasterKey
    wrapped: bytes
    newest: MasterKey
    made_at: datetime
    tries: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How far the rotation is."""

    secrets: int
    data_keys: int
    to_rewrap: int
    """Data keys that are not wrapped under the newest master key."""
    to_replace: int
    """Data keys that are too old, with secrets still under them."""


_NEWEST = """
coalesce((SELECT m.master FROM master_keys m WHERE m.organization_id = data_keys.organization_id), :newest)
"""
_USED = "EXISTS (SELECT FROM secrets s WHERE s.data_key_id = data_keys.id)"
_OLD = "made_at <= CAST(:old AS timestamptz)"
_TAKE = work.take(
    "data_keys",
    f"destroyed_at IS NULL AND due_at <= :now AND {_USED} AND ({_OLD} OR master <> {_NEWEST})",
    order="due_at, id",
)
_TAKEN = text(f"""
SELECT id, organization_id, purpose, master, wrapped, {_NEWEST} AS newest, made_at, tries
FROM data_keys WHERE id = ANY(:ids) ORDER BY id
""")
_REWRAPPED = text(f"""
UPDATE data_keys SET master = :master, wrapped = :wrapped, wrapped_at = :now, tries = 0, {work.GIVE_BACK}
WHERE id = :id AND {work.HELD} AND destroyed_at IS NULL
""")
# An organization's row is locked before its data keys, here as where they are destroyed: no new key appears meanwhile.
_LOCK_ORGANIZATION = "SELECT id FROM organizations WHERE id = :organization_id"
_SHARE_ORGANIZATION = text(f"{_LOCK_ORGANIZATION} FOR KEY SHARE")
_HOLD_ORGANIZATION = text(f"{_LOCK_ORGANIZATION} FOR UPDATE")
_STILL_HELD = text(f"""
SELECT id FROM data_keys WHERE id = :id AND {work.HELD} AND destroyed_at IS NULL FOR UPDATE
""")
_RESEALED = text("""
UPDATE secrets SET data_key_id = :data_key_id, nonce = :nonce, ciphertext = :ciphertext, version = :version,
                   rotated_at = :now
WHERE id = :id AND version = :version - 1 AND data_key_id = :old_key_id
""")
_RETRY = work.retry("data_keys")
_GIVE_BACK = text(f"UPDATE data_keys SET tries = 0, {work.GIVE_BACK} WHERE id = :id AND {work.HELD}")
_DELETE_EMPTY = text(f"DELETE FROM data_keys WHERE id = :id AND NOT {_USED}")
_FORGET_UNUSED = text(f"""
DELETE FROM data_keys WHERE id = ANY(ARRAY(
  SELECT id FROM data_keys WHERE destroyed_at IS NULL AND made_at < :before AND NOT {_USED}
  ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED))
""")
_COUNTS = text(f"""
SELECT (SELECT count(*) FROM secrets) AS secrets, count(*) AS data_keys,
       count(*) FILTER (WHERE master <> {_NEWEST}) AS to_rewrap, count(*) FILTER (WHERE {_OLD}) AS to_replace
FROM data_keys WHERE destroyed_at IS NULL AND {_USED}
""")


async def take_due(
    connection: Connection,
    *,
    newest: MasterKey,
    old: datetime,
    token: UUID,
    now: datetime,
    until: datetime,
    limit: int,
) -> list[DueKey]:
    """Hold data keys that were made before `old`, or that are not wrapped under the newest master key."""
    values = {"newest": newest, "old": old, "token": token, "now": now, "until": until, "limit": limit}
    ids = await read(connection, _TAKE, UUID, **values)
    rows = await read(connection, _TAKEN, _DueRow, ids=ids, newest=newest)
    return [
        DueKey(
            WrappedKey(row.id, KeyContext(row.organization_id, row.purpose), row.master, row.wrapped),
            row.newest,
            row.made_at,
            row.tries,
        )
        for row in rows
    ]


async def rewrapped(connection: Connection, key: WrappedKey, *, token: UUID, now: datetime) -> bool:
    """Store a data key under its new master key. False when the hold was lost, or the key was destroyed."""
    values = {"id": key.id, "master": key.master, "wrapped": key.wrapped, "token": token, "now": now}
    return bool(await write(connection, _REWRAPPED, **values))


async def resealed(
    connection: Connection,
    old: WrappedKey,
    new: WrappedKey,
    secrets: Sequence[Sealed],
    *,
    token: UUID,
    now: datetime,
) -> int:
    """Store secrets under a new data key, and delete the old one with its last secret; returns how many were stored.

    That is none when the hold was lost, or the old key was destroyed.
    """
    await read(connection, _SHARE_ORGANIZATION, UUID, organization_id=old.context.organization_id)
    if not await read(connection, _STILL_HELD, UUID, id=old.id, token=token):
        return 0
    await insert(connection, new, now=now)
    written = 0
    for sealed in secrets:
        written += await write(
            connection,
            _RESEALED,
            id=sealed.id,
            data_key_id=new.id,
            old_key_id=old.id,
            nonce=sealed.nonce,
            ciphertext=sealed.ciphertext,
            version=sealed.version,
            now=now,
        )
    await write(connection, _GIVE_BACK, id=old.id, token=token)
    await write(connection, _DELETE_EMPTY, id=old.id)
    return written


async def retry(
    connection: Connection, key_id: DataKeyId, *, token: UUID, now: datetime, due_at: datetime
) -> None:
    """Give a data key back after a failure, due again at `due_at`."""
    await write(connection, _RETRY, id=key_id, token=token, now=now, due_at=due_at)


async def forget_unused(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete data keys that were made before `before` and that no secret uses. Returns how many."""
    return await write(connection, _FORGET_UNUSED, before=before, limit=limit)


async def counts(connection: Connection, *, newest: MasterKey, old: datetime) -> Counts:
    found = await read_one(connection, _COUNTS, Counts, newest=newest, old=old)
    return found or Counts(0, 0, 0, 0)


# Destruction


@dataclass(frozen=True, slots=True)
class Destruction:
    """The record that an organization's data keys were destroyed."""

    data_keys: int
    secrets: int
    """How many secrets can never be read again."""
    at: datetime


_DESTROY = text("""
UPDATE data_keys SET wrapped = CAST('' AS bytea), destroyed_at = :now, work_token = NULL, work_until = NULL
WHERE organization_id = :organization_id AND destroyed_at IS NULL
""")
_UNREADABLE = text("SELECT count(*) FROM secrets WHERE organization_id = :organization_id")
_RECORD = text("""
INSERT INTO key_destructions (id, organization_id, data_keys, secrets, why, actor_kind, actor, request_id, at)
VALUES (:id, :organization_id, :data_keys, :secrets, :why, :actor_kind, :actor, :request_id, :now)
""")


async def destroy(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    destruction_id: UUID,
    why: str,
    actor: Actor,
    now: datetime,
) -> Destruction:
    """Erase the bytes of all data keys of an organization, and record it."""
    await read(connection, _HOLD_ORGANIZATION, UUID, organization_id=organization_id)
    data_keys = await write(connection, _DESTROY, organization_id=organization_id, now=now)
    secrets = await read_one(connection, _UNREADABLE, int, organization_id=organization_id) or 0
    await write(
        connection,
        _RECORD,
        id=destruction_id,
        organization_id=organization_id,
        data_keys=data_keys,
        secrets=secrets,
        why=why,
        actor_kind=actor.kind,
        actor=actor.name,
        request_id=actor.request_id,
        now=now,
    )
    return Destruction(data_keys, secrets, now)
