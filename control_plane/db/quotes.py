"""Queries on quotes that are kept."""

from dataclasses import fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read_one, write
from control_plane.domain.ids import OrganizationId, QuoteId
from control_plane.domain.quote import KeptQuote

_COLUMNS = tuple(field.name for field in fields(KeptQuote))
_INSERT = text(f"""
INSERT INTO quotes ({", ".join(_COLUMNS)}) VALUES ({", ".join(f":{column}" for column in _COLUMNS)})
""")
_GET = text(f"SELECT {', '.join(_COLUMNS)} FROM quotes WHERE organization_id = :organization_id AND id = :id")
_FORGET = text("""
DELETE FROM quotes WHERE id IN (
  SELECT q.id FROM quotes q
  WHERE q.expires_at < :before AND NOT EXISTS (
    SELECT FROM leases l WHERE l.organization_id = q.organization_id AND l.quote_id = q.id)
  ORDER BY q.expires_at LIMIT :limit
)
""")


async def insert(connection: Connection, quote: KeptQuote) -> None:
    values = {column: getattr(quote, column) for column in _COLUMNS}
    lists = {column: list(values[column]) for column in ("regions", "providers")}
    await write(connection, _INSERT, **values | lists)


async def get(connection: Connection, organization_id: OrganizationId, quote_id: QuoteId) -> KeptQuote | None:
    """None when the organization has no such quote, or has it no longer."""
    return await read_one(connection, _GET, KeptQuote, organization_id=organization_id, id=quote_id)


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete quotes that expired before a moment and that no lease was created for. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)
