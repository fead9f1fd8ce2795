"""Queries on files of suppliers' invoices that are on their way."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.domain.money import Nano
from control_plane.domain.supplier_invoice import SupplierLine, UploadedPart

_PARTS_PER_QUERY = 20


@dataclass(frozen=True, slots=True)
class SupplierUpload:
    """A file that is on its way."""

    id: UUID
    provider: str
    month: datetime
    """The first instant of the month."""
    begun_at: datetime
    begun_by: str


@dataclass(frozen=True, slots=True)
class Sums:
    """What the lines of a file come to."""

    lines: int
    """Without the header."""
    amount_nano: Nano


@dataclass(frozen=True, slots=True)
class _Content:
    number: int
    content: str


_COLUMNS = "id, provider, month, begun_at, begun_by"
_INSERT = text(f"""
INSERT INTO supplier_uploads ({_COLUMNS}) VALUES (:id, :provider, :month, :begun_at, :begun_by)
""")
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('supplier upload ' || CAST(:id AS text), 0))")
_GET = text(f"SELECT {_COLUMNS} FROM supplier_uploads WHERE id = :id")
_PUT = text("""
INSERT INTO supplier_upload_parts (upload_id, number, first_line, line_count, size, amount_nano, content, lines)
VALUES (:upload_id, :number, :first_line, :lines, :size, :amount_nano, :content, CAST(:read AS jsonb))
ON CONFLICT (upload_id, number) DO UPDATE SET
  first_line = EXCLUDED.first_line, line_count = EXCLUDED.line_count, size = EXCLUDED.size,
  amount_nano = EXCLUDED.amount_nano, content = EXCLUDED.content, lines = EXCLUDED.lines
""")
_PARTS = text("""
SELECT number, first_line, line_count AS lines, size, amount_nano FROM supplier_upload_parts WHERE upload_id = :id
ORDER BY number
""")
_CONTENTS = text("""
SELECT number, content FROM supplier_upload_parts WHERE upload_id = :id AND number > :after
ORDER BY number LIMIT :limit
""")
_SUMS = text("""
SELECT coalesce(sum(jsonb_array_length(lines)), 0)::bigint AS lines, coalesce(sum((
  SELECT sum((line ->> 'amount_nano')::bigint) FROM jsonb_array_elements(lines) line
)), 0)::bigint AS amount_nano
FROM supplier_upload_parts WHERE upload_id = :id
""")
_KEEP = text("""
INSERT INTO supplier_invoice_parts (invoice_id, number, lines)
SELECT :invoice_id, number, lines FROM supplier_upload_parts WHERE upload_id = :id
""")
_DELETE = text("DELETE FROM supplier_uploads WHERE id = :id")
_FORGET = text("""
DELETE FROM supplier_uploads WHERE id IN (
  SELECT id FROM supplier_uploads WHERE begun_at < :before ORDER BY begun_at LIMIT :limit
)
""")


async def insert(connection: Connection, upload: SupplierUpload) -> None:
    await write(connection, _INSERT, **{name: getattr(upload, name) for name in SupplierUpload.__slots__})


async def lock(connection: Connection, upload_id: UUID) -> SupplierUpload | None:
    """A file that is on its way, which nobody else changes before this transaction ends."""
    await connection.execute(_LOCK, {"id": upload_id.hex})
    return await read_one(connection, _GET, SupplierUpload, id=upload_id)


async def put(
    connection: Connection,
    upload_id: UUID,
    part: UploadedPart,
    *,
    content: str,
    lines: Sequence[SupplierLine],
) -> None:
    """Store a part. It takes the place of an earlier one with its number."""
    values = {name: getattr(part, name) for name in UploadedPart.__slots__}
    await write(connection, _PUT, upload_id=upload_id, **values, content=content, read=document(list(lines)))


async def parts(connection: Connection, upload_id: UUID) -> list[UploadedPart]:
    return await read(connection, _PARTS, UploadedPart, id=upload_id)


async def contents(connection: Connection, upload_id: UUID) -> AsyncIterator[str]:
    """The file as it was sent, part by part."""
    after = 0
    while True:
        found = await read(connection, _CONTENTS, _Content, id=upload_id, after=after, limit=_PARTS_PER_QUERY)
        for part in found:
            yield part.content
        if len(found) < _PARTS_PER_QUERY:
            return
        after = found[-1].number


async def sums(connection: Connection, upload_id: UUID) -> Sums:
    (found,) = await read(connection, _SUMS, Sums, id=upload_id)
    return found


async def keep(connection: Connection, upload_id: UUID, *, invoice_id: UUID) -> None:
    """Make the parts of a file those of an invoice."""
    await write(connection, _KEEP, id=upload_id, invoice_id=invoice_id)


async def delete(connection: Connection, upload_id: UUID) -> None:
    await write(connection, _DELETE, id=upload_id)


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete the oldest files that were begun before, and were not imported. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)
