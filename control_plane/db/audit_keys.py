"""Queries on the keys that sign checkpoints of the audit log."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import SecretId

_NEWEST = text("SELECT id, public, secret_id, made_at FROM audit_keys ORDER BY made_at DESC, id LIMIT 1")
# One process at a time decides whether a key is needed.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('splitplane audit keys'))::text")
_INSERT = text(
    "INSERT INTO audit_keys (id, public, secret_id, made_at) VALUES (:id, :public, :secret_id, :made_at)"
)


@dataclass(frozen=True, slots=True)
class AuditKey:
    """A key, and where its sealed private half is."""

    id: str
    public: bytes
    secret_id: SecretId
    made_at: datetime


async def newest(connection: Connection) -> AuditKey | None:
    """The key that signs now, unless it is too old; None when there is none."""
    return await read_one(connection, _NEWEST, AuditKey)


async def lock(connection: Connection) -> None:
    await read(connection, _LOCK, str)


async def insert(connection: Connection, key: AuditKey) -> None:
    await write(
        connection, _INSERT, id=key.id, public=key.public, secret_id=key.secret_id, made_at=key.made_at
    )
