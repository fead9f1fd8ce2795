"""Queries on the hours of samples that are written to an archive, and on what is written of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.db.samples import COLUMNS, StoredSample, slot_of
from control_plane.domain.ids import ClaimId, OrganizationId
from control_plane.domain.sample_archive import HOUR

_BEGIN = text("""
INSERT INTO sample_archives (hour) SELECT unnest(CAST(:hours AS timestamptz[])) ON CONFLICT DO NOTHING
""")
_UNWRITTEN = text("""
SELECT hour FROM sample_archives WHERE written_at IS NULL AND lost_at IS NULL ORDER BY hour
""")
# All of a machine's samples of an hour lie in one partition, which the planner takes from the slot.
_SENDERS = text("""
SELECT organization_id, claim_id, count(*) AS samples FROM samples
WHERE slot = :slot AND received_at >= :since AND received_at < :until
GROUP BY organization_id, claim_id ORDER BY organization_id, claim_id
""")
_OF_CLAIMS = text(f"""
SELECT {", ".join(COLUMNS)} FROM (
  SELECT s.*, row_number() OVER (
    PARTITION BY claim_id, floor(extract(epoch FROM received_at) / CAST(:every AS integer))
    ORDER BY received_at DESC, sequence DESC) AS place
  FROM samples s
  WHERE slot = :slot AND received_at >= :since AND received_at < :until AND claim_id = ANY(CAST(:claims AS uuid[]))
) placed
WHERE (place = 1 OR notable) AND (CAST(:after_claim AS uuid) IS NULL OR (claim_id, received_at, sequence)
  > (CAST(:after_claim AS uuid), CAST(:after_at AS timestamptz), CAST(:after_sequence AS bigint)))
ORDER BY claim_id, received_at, sequence LIMIT :limit
""")
_IS_OPEN = text("""
SELECT EXISTS (SELECT FROM sample_archives WHERE hour = :hour AND written_at IS NULL AND lost_at IS NULL)
""")
_WRITTEN = text("""
UPDATE sample_archives SET written_at = :now, received = :received, rows = :rows, files = :files, bytes = :bytes,
  manifest_sha256 = :sha256
WHERE hour = :hour AND written_at IS NULL AND lost_at IS NULL
""")
_LOST = text("""
UPDATE sample_archives SET lost_at = :now
WHERE hour = ANY(CAST(:hours AS timestamptz[])) AND written_at IS NULL AND lost_at IS NULL
""")
_HAS_SAMPLES = text("""
SELECT EXISTS (SELECT FROM samples WHERE slot = :slot AND received_at >= :since AND received_at < :until)
""")
_OLD = text("""
SELECT hour FROM sample_archives WHERE written_at IS NOT NULL AND deleted_at IS NULL AND hour < :before
ORDER BY hour LIMIT :limit
""")
_DELETED = text("UPDATE sample_archives SET deleted_at = :now WHERE hour = :hour AND deleted_at IS NULL")


@dataclass(frozen=True, slots=True)
class HourSender:
    """Whose samples an hour has, of one claim."""

    organization_id: OrganizationId
    claim_id: ClaimId
    samples: int


async def begin(connection: Connection, hours: Sequence[datetime]) -> None:
    """Let the hours wait to be written, if they are not known yet."""
    await write(connection, _BEGIN, hours=list(hours))


async def unwritten(connection: Connection) -> list[datetime]:
    """The hours that wait to be written, oldest first; none where no archive was ever configured."""
    return await read(connection, _UNWRITTEN, datetime)


async def senders(connection: Connection, hour: datetime) -> list[HourSender]:
    """Whose samples an hour has, in the order of organizations and claims."""
    return await read(connection, _SENDERS, HourSender, **_within(hour))


async def of_claims(
    connection: Connection,
    hour: datetime,
    claim_ids: Sequence[ClaimId],
    *,
    every_seconds: int,
    after: StoredSample | None,
    limit: int,
) -> list[StoredSample]:
    """The samples of an hour that are kept of these claims: the last one of each so many seconds, and all notable.

    A page of them, behind `after`.
    """
    values = {
        **_within(hour),
        "claims": list(claim_ids),
        "every": every_seconds,
        "after_claim": None if after is None else after.claim_id,
        "after_at": None if after is None else after.received_at,
        "after_sequence": 0 if after is None else after.sequence,
        "limit": limit,
    }
    return await read(connection, _OF_CLAIMS, StoredSample, **values)


async def is_open(connection: Connection, hour: datetime) -> bool:
    """Whether an hour waits to be written, and so has all of its samples."""
    return bool(await read_one(connection, _IS_OPEN, bool, hour=hour))


async def written(
    connection: Connection,
    hour: datetime,
    *,
    received: int,
    rows: int,
    files: int,
    size: int,
    sha256: bytes,
    now: datetime,
) -> bool:
    """Store that an hour is written. False when it was meanwhile, or is lost."""
    values = {"received": received, "rows": rows, "files": files, "bytes": size, "sha256": sha256}
    return bool(await write(connection, _WRITTEN, hour=hour, **values, now=now))


async def lose(connection: Connection, hours: Sequence[datetime], *, now: datetime) -> int:
    """Store that hours were emptied before they were written. Returns how many."""
    return await write(connection, _LOST, hours=list(hours), now=now) if hours else 0


async def has_samples(connection: Connection, hour: datetime) -> bool:
    """Whether anything was received in an hour that is still there."""
    return bool(await read_one(connection, _HAS_SAMPLES, bool, **_within(hour)))


async def old(connection: Connection, *, before: datetime, limit: int) -> list[datetime]:
    """Hours before a moment whose files are still there, oldest first."""
    return await read(connection, _OLD, datetime, before=before, limit=limit)


async def deleted(connection: Connection, hour: datetime, *, now: datetime) -> None:
    """Store that the files of an hour are deleted."""
    await write(connection, _DELETED, hour=hour, now=now)


def _within(hour: datetime) -> dict[str, object]:
    return {"slot": slot_of(hour), "since": hour, "until": hour + HOUR}
