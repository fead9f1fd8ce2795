"""Queries on where the audit log is exported to, and how far its chains are exported and pruned."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from control_plane.db.audit import CHAIN, Chain
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import OrganizationId

_BUCKET = text("SELECT audit_bucket AS name FROM installation")
_SET_BUCKET = text("UPDATE installation SET audit_bucket = :bucket")
_TO_EXPORT = text(
    CHAIN.format(
        source="""
audit_chains c WHERE sequence > exported_sequence AND EXISTS (
  SELECT FROM audit_events e WHERE e.organization_id IS NOT DISTINCT FROM c.organization_id
    AND e.sequence = c.exported_sequence + 1 AND e.at < :before)
ORDER BY organization_id NULLS FIRST LIMIT :limit"""
    )
)
_NOTE_EXPORT = text("""
UPDATE audit_chains SET exported_sequence = :last
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) AND exported_sequence = :seen
""")
_TO_PRUNE = text(
    CHAIN.format(
        source="""
audit_chains c WHERE sequence > pruned_sequence + 1 AND EXISTS (
  SELECT FROM audit_events e WHERE e.organization_id IS NOT DISTINCT FROM c.organization_id
    AND e.sequence = c.pruned_sequence + 1 AND e.at < :before)
ORDER BY organization_id NULLS FIRST LIMIT :limit"""
    )
)
# The head of a chain is never pruned: the next line needs its hash, and a check something to end with.
_LAST_TO_PRUNE = text("""
WITH oldest AS (
  SELECT sequence, at FROM audit_events
  WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) AND sequence > :after
  ORDER BY sequence LIMIT :limit)
SELECT coalesce((SELECT min(sequence) - 1 FROM oldest WHERE at >= :before), max(sequence), CAST(:after AS bigint))
FROM oldest WHERE sequence < (
  SELECT sequence FROM audit_chains WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid))
""")
_PRUNED = text("""
UPDATE audit_chains SET pruned_sequence = :last
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid)
""")
_PRUNE = text("""
DELETE FROM audit_events
WHERE organization_id IS NOT DISTINCT FROM CAST(:organization_id AS uuid) AND sequence <= :last
""")


@dataclass(frozen=True, slots=True)
class _Bucket:
    name: str | None


async def bucket(connection: Connection) -> str | None:
    """The bucket that the log is exported to; None while it is not exported."""
    found = await read_one(connection, _BUCKET, _Bucket)
    return None if found is None else found.name


async def set_bucket(connection: Connection, name: str | None) -> None:
    await write(connection, _SET_BUCKET, bucket=name)


async def to_export(connection: Connection, *, before: datetime, limit: int) -> list[Chain]:
    """Chains whose first line that is not exported is older than `before`."""
    return await read(connection, _TO_EXPORT, Chain, before=before, limit=limit)


async def note_export(
    connection: Connection, organization_id: OrganizationId | None, *, seen: int, last: int
) -> None:
    """A chain is exported up to `last`; `seen` is up to where it was before."""
    await write(connection, _NOTE_EXPORT, organization_id=organization_id, seen=seen, last=last)


async def to_prune(connection: Connection, *, before: datetime, limit: int) -> list[Chain]:
    """Chains whose oldest line is older than `before`."""
    return await read(connection, _TO_PRUNE, Chain, before=before, limit=limit)


async def last_to_prune(
    connection: Connection,
    organization_id: OrganizationId | None,
    *,
    after: int,
    before: datetime,
    limit: int,
) -> int:
    """The last of the oldest lines that are all older than `before`; `after` when there is none."""
    values = {"organization_id": organization_id, "after": after, "before": before, "limit": limit}
    return await read_one(connection, _LAST_TO_PRUNE, int, **values) or after


async def prune(connection: Connection, organization_id: OrganizationId | None, *, last: int) -> None:
    """Delete the lines of a chain up to `last`. A checkpoint there has to be stored before."""
    await write(connection, _PRUNED, organization_id=organization_id, last=last)
    await write(connection, _PRUNE, organization_id=organization_id, last=last)
