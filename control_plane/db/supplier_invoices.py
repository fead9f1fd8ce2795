"""Queries on the invoices of suppliers."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.domain.money import Nano
from control_plane.domain.supplier_invoice import SupplierLine


@dataclass(frozen=True, slots=True)
class SupplierInvoice:
    """A supplier's invoice of a month, without its lines."""

    id: UUID
    provider: str
    month: datetime
    """The first instant of the month."""
    sha256: str
    """The digest of the file, in hexadecimal."""
    line_count: int
    amount_nano: Nano
    imported_at: datetime
    imported_by: str


@dataclass(frozen=True, slots=True)
class SupplierLines:
    """The lines of the last import of a supplier's month."""

    provider: str
    lines: tuple[SupplierLine, ...]


_COLUMNS = "id, provider, month, sha256, line_count, amount_nano, imported_at, imported_by"
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('supplier invoices of ' || :provider, 0))")
_INSERT = text(f"""
INSERT INTO supplier_invoices ({_COLUMNS}, lines)
VALUES (:id, :provider, :month, :sha256, :line_count, :amount_nano, :imported_at, :imported_by, CAST(:lines AS jsonb))
""")
_LAST = text(f"""
SELECT {_COLUMNS} FROM supplier_invoices WHERE provider = :provider AND month = :month
ORDER BY imported_at DESC, id DESC LIMIT 1
""")
_LINES = text("""
SELECT DISTINCT ON (provider) provider, lines FROM supplier_invoices
WHERE month = :month AND (CAST(:provider AS text) IS NULL OR provider = :provider)
ORDER BY provider, imported_at DESC, id DESC
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM supplier_invoices
WHERE CAST(:before_at AS timestamptz) IS NULL OR (imported_at, id) < (:before_at, CAST(:before_id AS uuid))
ORDER BY imported_at DESC, id DESC LIMIT :limit
""")
_KNOWN = text("SELECT EXISTS (SELECT FROM provider_accounts WHERE provider = :provider)")


async def lock(connection: Connection, provider: str) -> None:
    """Let one transaction at a time import invoices of a supplier."""
    await connection.execute(_LOCK, {"provider": provider})


async def insert(connection: Connection, invoice: SupplierInvoice, lines: tuple[SupplierLine, ...]) -> None:
    values = {name: getattr(invoice, name) for name in SupplierInvoice.__slots__}
    await write(connection, _INSERT, **values, lines=document(lines))


async def last(connection: Connection, provider: str, month: datetime) -> SupplierInvoice | None:
    """The last import of a supplier's month, which is the one that counts."""
    return await read_one(connection, _LAST, SupplierInvoice, provider=provider, month=month)


async def lines(connection: Connection, month: datetime, provider: str | None) -> list[SupplierLines]:
    """The lines that count in a month, of a supplier or of all, by provider."""
    return await read(connection, _LINES, SupplierLines, month=month, provider=provider)


async def page(
    connection: Connection, *, before: tuple[datetime, UUID] | None, limit: int
) -> list[SupplierInvoice]:
    """Newest first; `before` is time and id of the previous page's last one."""
    at, id_ = before or (None, None)
    return await read(connection, _PAGE, SupplierInvoice, before_at=at, before_id=id_, limit=limit)


async def is_known(connection: Connection, provider: str) -> bool:
    """Whether there is, or was, an account at a provider."""
    return bool(await read_one(connection, _KNOWN, bool, provider=provider))
