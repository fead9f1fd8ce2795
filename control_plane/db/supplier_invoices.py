"""Queries on the invoices of suppliers, and on what was posted of them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ledger import AccountKind
from control_plane.domain.money import Nano
from control_plane.domain.supplier_invoice import SupplierEvent, SupplierLine

PARTS_PER_QUERY = 20
"""Each has some hundred lines, so that memory does not grow with an invoice."""


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
    state: SupplierEvent | None = None
    """What somebody decided on it last; None where nobody has."""
    decided_at: datetime | None = None
    decided_by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SupplierPosting:
    """What somebody decided on a supplier's invoice."""

    id: UUID
    invoice_id: UUID
    provider: str
    month: datetime
    event: SupplierEvent
    amount_nano: Nano
    """By how much it makes the posted cost of the supplier's month more."""
    reason: str
    decided_at: datetime
    decided_by: str


@dataclass(frozen=True, slots=True)
class Counting:
    """The import that counts in a supplier's month."""

    id: UUID
    provider: str


_INVOICE = "id, provider, month, sha256, line_count, amount_nano, imported_at, imported_by"
_POSTING = "id, invoice_id, provider, month, event, amount_nano, reason, decided_at, decided_by"
_COLUMNS = """
i.id, i.provider, i.month, i.sha256, i.line_count, i.amount_nano, i.imported_at, i.imported_by, d.event AS state,
d.decided_at, d.decided_by, d.reason
"""
_DECIDED = """
LEFT JOIN LATERAL (
  SELECT event, decided_at, decided_by, reason FROM supplier_postings p WHERE p.invoice_id = i.id
  ORDER BY decided_at DESC, id DESC LIMIT 1
) d ON true
"""
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('supplier invoices of ' || :provider, 0))")
_INSERT = text(f"""
INSERT INTO supplier_invoices ({_INVOICE})
VALUES (:id, :provider, :month, :sha256, :line_count, :amount_nano, :imported_at, :imported_by)
""")
_INSERT_POSTING = text(f"""
INSERT INTO supplier_postings ({_POSTING})
VALUES (:id, :invoice_id, :provider, :month, :event, :amount_nano, :reason, :decided_at, :decided_by)
""")
_GET = text(f"SELECT {_COLUMNS} FROM supplier_invoices i {_DECIDED} WHERE i.id = :id")
_LAST = text(f"""
SELECT {_COLUMNS} FROM supplier_invoices i {_DECIDED} WHERE i.provider = :provider AND i.month = :month
ORDER BY i.imported_at DESC, i.id DESC LIMIT 1
""")
_COUNTING = text(f"""
SELECT last.id, last.provider FROM (
  SELECT DISTINCT ON (provider) id, provider FROM supplier_invoices
  WHERE month = :month AND (CAST(:provider AS text) IS NULL OR provider = :provider)
  ORDER BY provider, imported_at DESC, id DESC
) last
WHERE NOT EXISTS (SELECT FROM supplier_postings p WHERE p.invoice_id = last.id AND p.event = '{SupplierEvent.VOIDED}')
ORDER BY last.provider
""")
_LINES = text("""
SELECT number, lines FROM supplier_invoice_parts WHERE invoice_id = :invoice_id AND number > :after
ORDER BY number LIMIT :limit
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM supplier_invoices i {_DECIDED}
WHERE CAST(:before_at AS timestamptz) IS NULL OR (i.imported_at, i.id) < (:before_at, CAST(:before_id AS uuid))
ORDER BY i.imported_at DESC, i.id DESC LIMIT :limit
""")
_POSTED = text("""
SELECT coalesce(sum(amount_nano), 0)::bigint FROM supplier_postings WHERE provider = :provider AND month = :month
""")
_KNOWN = text("SELECT EXISTS (SELECT FROM provider_accounts WHERE provider = :provider)")


@dataclass(frozen=True, slots=True)
class _Part:
    number: int
    lines: tuple[SupplierLine, ...]


async def lock(connection: Connection, provider: str) -> None:
    """Let one transaction at a time import and post invoices of a supplier."""
    await connection.execute(_LOCK, {"provider": provider})


async def insert(connection: Connection, invoice: SupplierInvoice) -> None:
    names = [name.strip() for name in _INVOICE.split(",")]
    await write(connection, _INSERT, **{name: getattr(invoice, name) for name in names})


async def get(connection: Connection, invoice_id: UUID) -> SupplierInvoice | None:
    return await read_one(connection, _GET, SupplierInvoice, id=invoice_id)


async def last(connection: Connection, provider: str, month: datetime) -> SupplierInvoice | None:
    """The last import of a supplier's month, which is the one that counts unless it is void."""
    return await read_one(connection, _LAST, SupplierInvoice, provider=provider, month=month)


async def counting(connection: Connection, month: datetime, provider: str | None) -> list[Counting]:
    """The imports that count in a month, of a supplier or of all, by provider."""
    return await read(connection, _COUNTING, Counting, month=month, provider=provider)


async def lines(connection: Connection, invoice_id: UUID) -> AsyncIterator[tuple[SupplierLine, ...]]:
    """The lines of an import in their order, some hundred at a time."""
    after = 0
    while True:
        parts = await read(
            connection, _LINES, _Part, invoice_id=invoice_id, after=after, limit=PARTS_PER_QUERY
        )
        for part in parts:
            yield part.lines
        if len(parts) < PARTS_PER_QUERY:
            return
        after = parts[-1].number


async def page(
    connection: Connection, *, before: tuple[datetime, UUID] | None, limit: int
) -> list[SupplierInvoice]:
    """Newest first; `before` is time and id of the previous page's last one."""
    at, id_ = before or (None, None)
    return await read(connection, _PAGE, SupplierInvoice, before_at=at, before_id=id_, limit=limit)


async def posted(connection: Connection, provider: str, month: datetime) -> Nano:
    """What the ledger has of a supplier's month."""
    (amount,) = await read(connection, _POSTED, int, provider=provider, month=month)
    return Nano(amount)


async def insert_posting(connection: Connection, posting: SupplierPosting) -> None:
    await write(
        connection, _INSERT_POSTING, **{name: getattr(posting, name) for name in SupplierPosting.__slots__}
    )


async def is_known(connection: Connection, provider: str) -> bool:
    """Whether there is, or was, an account at a provider."""
    return bool(await read_one(connection, _KNOWN, bool, provider=provider))


@dataclass(frozen=True, slots=True)
class SupplierSums:
    """What suppliers' invoices of a month come to by their lines, and what the ledger has of them."""

    lines: Nano
    cost: Nano
    owed: Nano


# The supplier's amounts are added up from the lines, and the ledger's from the postings.
_SUPPLIERS = text(f"""
SELECT coalesce((
  SELECT sum((line ->> 'amount_nano')::bigint)
  FROM (
    SELECT DISTINCT ON (provider) invoice_id, event FROM supplier_postings WHERE month = :period
    ORDER BY provider, decided_at DESC, id DESC
  ) last JOIN supplier_invoice_parts part ON part.invoice_id = last.invoice_id
  CROSS JOIN LATERAL jsonb_array_elements(part.lines) line
  WHERE last.event = '{SupplierEvent.POSTED}'
), 0)::bigint AS lines, -coalesce(posted.cost, 0)::bigint AS cost, coalesce(posted.owed, 0)::bigint AS owed
FROM (
  SELECT sum(p.amount_nano) FILTER (WHERE a.kind = '{AccountKind.PROVIDER_COST}') AS cost,
         sum(p.amount_nano) FILTER (WHERE a.kind = '{AccountKind.PAYABLE}') AS owed
  FROM supplier_postings s JOIN organizations o ON o.platform
  JOIN transactions t ON t.organization_id = o.id AND t.key = 'supplier_invoice:' || replace(s.id::text, '-', '')
  JOIN postings p ON p.transaction_id = t.id AND p.organization_id = t.organization_id
  JOIN ledger_accounts a ON a.id = p.account_id
  WHERE s.month = :period
) posted
""")


async def reconciled(connection: Connection, *, period: datetime) -> SupplierSums:
    """The suppliers' invoices of the month that are posted, and the ledger."""
    (found,) = await read(connection, _SUPPLIERS, SupplierSums, period=period)
    return found
