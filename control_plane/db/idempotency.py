"""Stored answers of POST requests, written in the transaction of their effect."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from control_plane.db.connection import Connection
from control_plane.db.rows import read_one, write
from control_plane.db.tables.marks import among
from control_plane.domain.ids import OrganizationId
from control_plane.domain.organization import OPEN


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    request_hmac: bytes
    status: int
    answer: bytes


_GET = text(f"""
SELECT i.request_hmac, i.status, i.answer
FROM idempotency_keys i JOIN organizations o ON o.id = i.organization_id
WHERE i.organization_id = :organization_id AND i.key = :key AND {among("o.state", OPEN)}
""")
_INSERT = text("""
INSERT INTO idempotency_keys (organization_id, key, request_hmac, status, answer, created_at)
VALUES (:organization_id, :key, :request_hmac, :status, :answer, :now)
""")
_FORGET = text("""
DELETE FROM idempotency_keys WHERE (organization_id, key) IN (
  SELECT organization_id, key FROM idempotency_keys WHERE created_at < :before ORDER BY created_at LIMIT :limit)
""")

_FORGET_SURPLUS = text("""
WITH crowded AS (
  SELECT organization_id FROM idempotency_keys GROUP BY organization_id
  HAVING count(*) > :most OR sum(octet_length(answer)) > :most_bytes),
ranked AS (
  SELECT organization_id, key, created_at, row_number() OVER newest AS place,
         sum(octet_length(answer)) OVER newest AS bytes
  FROM idempotency_keys JOIN crowded USING (organization_id)
  WINDOW newest AS (
    PARTITION BY organization_id ORDER BY created_at DESC, key
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
DELETE FROM idempotency_keys WHERE (organization_id, key) IN (
  SELECT organization_id, key FROM ranked WHERE place > :most OR bytes > :most_bytes
  ORDER BY created_at LIMIT :limit)
""")


class KeyTaken(Exception):  # noqa: N818 - expected: the same request was sent twice
    """Another request with this key committed first; its effect stands and ours must roll back."""


async def get(connection: Connection, organization_id: OrganizationId, key: str) -> StoredAnswer | None:
    """The stored answer of a key; None when there is none, or when the organization is closing or closed."""
    return await read_one(connection, _GET, StoredAnswer, organization_id=organization_id, key=key)


async def insert(
    connection: Connection, organization_id: OrganizationId, key: str, answer: StoredAnswer, *, now: datetime
) -> None:
    """Store an answer; raises KeyTaken when a concurrent request with this key committed first."""
    try:
        await write(
            connection,
            _INSERT,
            organization_id=organization_id,
            key=key,
            request_hmac=answer.request_hmac,
            status=answer.status,
            answer=answer.answer,
            now=now,
        )
    except IntegrityError as error:
        raise KeyTaken from error


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete answers that are older than `before`, oldest first. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)


async def forget_surplus(connection: Connection, *, most: int, most_bytes: int, limit: int) -> int:
    """Delete the oldest answers of organizations that have more than `most`, or more bytes. Returns how many."""
    return await write(connection, _FORGET_SURPLUS, most=most, most_bytes=most_bytes, limit=limit)
