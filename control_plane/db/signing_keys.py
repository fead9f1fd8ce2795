"""Queries on the keys that sign access tokens."""

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, write
from control_plane.domain.secret import MasterKey
from control_plane.domain.signing_key import SigningKey

_ALL = text("""
SELECT id, public, signs_from, signs_until, removed_at, master, wrapped, nonce, ciphertext FROM signing_keys
WHERE signs_until > :after ORDER BY signs_from, id
""")
# One process at a time decides whether a key is needed.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('splitplane signing keys'))::text")
_INSERT = text("""
INSERT INTO signing_keys (id, public, master, wrapped, nonce, ciphertext, made_at, signs_from, signs_until)
VALUES (:id, :public, :master, :wrapped, :nonce, :ciphertext, :now, :signs_from, :signs_until)
""")
_RESEALED = text("""
UPDATE signing_keys SET master = :master, wrapped = :wrapped, nonce = :nonce, ciphertext = :ciphertext
WHERE id = :id AND master = :before
""")
_REMOVE = text("UPDATE signing_keys SET removed_at = :now WHERE id = :id AND removed_at IS NULL")


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A signing key with its sealed private half."""

    id: str
    public: bytes
    signs_from: datetime
    signs_until: datetime
    removed_at: datetime | None
    master: MasterKey
    wrapped: bytes = field(repr=False)
    nonce: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)

    @property
    def key(self) -> SigningKey:
        return SigningKey(self.id, self.public, self.signs_from, self.signs_until, self.removed_at)


async def signed_after(connection: Connection, after: datetime) -> list[StoredKey]:
    """The keys that sign after this time, the first one first, with those that were removed."""
    return await read(connection, _ALL, StoredKey, after=after)


async def lock(connection: Connection) -> None:
    await read(connection, _LOCK, str)


async def insert(connection: Connection, key: StoredKey, *, now: datetime) -> None:
    await write(
        connection,
        _INSERT,
        id=key.id,
        public=key.public,
        master=key.master,
        wrapped=key.wrapped,
        nonce=key.nonce,
        ciphertext=key.ciphertext,
        signs_from=key.signs_from,
        signs_until=key.signs_until,
        now=now,
    )


async def resealed(connection: Connection, key: StoredKey, *, before: MasterKey) -> bool:
    """Store a key that is sealed under another master key than `before`. False when another process was first."""
    values = {"master": key.master, "wrapped": key.wrapped, "nonce": key.nonce, "ciphertext": key.ciphertext}
    return bool(await write(connection, _RESEALED, id=key.id, before=before, **values))


async def remove(connection: Connection, key_id: str, *, now: datetime) -> bool:
    """Let a key verify nothing any more. False when there is none, or it is removed."""
    return bool(await write(connection, _REMOVE, id=key_id, now=now))
