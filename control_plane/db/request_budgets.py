"""The buckets of request tokens that all API processes share."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, write
from control_plane.domain.request_budget import Answer, Ask, Given

# A function that runs with its owner's rights: the asks of a process belong to many organizations.
_TAKE = text("""
SELECT processes, bucket, granted, level FROM take_request_tokens(:process, CAST(:asks AS jsonb))
""")


@dataclass(frozen=True, slots=True)
class _Row:
    processes: int
    bucket: UUID | None
    granted: float | None
    level: float | None


async def take(connection: Connection, process: UUID, asks: Sequence[Ask]) -> Answer:
    """Report and take tokens, and say that this process runs. One statement for all buckets."""
    found = await read(connection, _TAKE, _Row, process=process, asks=document(asks))
    return Answer(
        found[0].processes,
        tuple(
            Given(row.bucket, row.granted, row.level)
            for row in found
            if row.bucket is not None and row.granted is not None and row.level is not None
        ),
    )


_FORGET = text("""
DELETE FROM request_budgets WHERE bucket = ANY(ARRAY(
  SELECT bucket FROM request_budgets WHERE refilled_at < :before LIMIT :limit FOR UPDATE SKIP LOCKED))
""")


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete buckets that nobody took from since `before`: one that does not exist is full, too. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)
