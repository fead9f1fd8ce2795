"""Queries on quotes that are kept."""

from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import convert, read_one, write
from control_plane.domain.ids import OrganizationId, QuoteId
from control_plane.domain.quote import KeptQuote

_COLUMNS = tuple(field.name for field in fields(KeptQuote))
_INSERT = text(f"""
INSERT INTO quotes ({", ".join(_COLUMNS)}) VALUES ({", ".join(f":{column}" for column in _COLUMNS)})
""")
_GET = text(f"SELECT {', '.join(_COLUMNS)} FROM quotes WHERE organization_id = :organization_id AND id = :id")
_SHOW = text(f"""
SELECT {", ".join(f"q.{column}" for column in _COLUMNS)}, p.name AS project, e.name AS environment,
  s.gpu_count, (SELECT count(*) FROM leases l
    WHERE l.organization_id = q.organization_id AND l.quote_id = q.id) AS leases
FROM quotes q
JOIN projects p ON p.organization_id = q.organization_id AND p.id = q.project_id
JOIN environments e ON e.organization_id = q.organization_id AND e.id = q.environment_id
JOIN skus s ON s.name = q.sku
WHERE q.organization_id = :organization_id AND q.id = :id
""")
_FORGET = text("""
DELETE FROM quotes WHERE id IN (
  SELECT q.id FROM quotes q
  WHERE q.expires_at < :before AND NOT EXISTS (
    SELECT FROM leases l WHERE l.organization_id = q.organization_id AND l.quote_id = q.id)
  ORDER BY q.expires_at LIMIT :limit
)
""")


@dataclass(frozen=True, slots=True)
class Shown:
    """What there is to say of a quote besides itself."""

    project: str
    environment: str
    gpu_count: int
    """Of its SKU."""
    leases: int
    """How many leases were created for it."""


@dataclass(frozen=True, slots=True)
class Overview:
    quote: KeptQuote
    shown: Shown


async def insert(connection: Connection, quote: KeptQuote) -> None:
    values = {column: getattr(quote, column) for column in _COLUMNS}
    lists = {column: list(values[column]) for column in ("regions", "providers")}
    await write(connection, _INSERT, **values | lists)


async def get(connection: Connection, organization_id: OrganizationId, quote_id: QuoteId) -> KeptQuote | None:
    """None when the organization has no such quote, or has it no longer."""
    return await read_one(connection, _GET, KeptQuote, organization_id=organization_id, id=quote_id)


async def show(connection: Connection, organization_id: OrganizationId, quote_id: QuoteId) -> Overview | None:
    """None when the organization has no such quote, or has it no longer."""
    asked = {"organization_id": organization_id, "id": quote_id}
    found = (await connection.execute(_SHOW, asked)).all()
    return Overview(convert(found[0], KeptQuote), convert(found[0], Shown)) if found else None


async def forget(connection: Connection, *, before: datetime, limit: int) -> int:
    """Delete quotes that expired before a moment and that no lease was created for. Returns how many."""
    return await write(connection, _FORGET, before=before, limit=limit)
