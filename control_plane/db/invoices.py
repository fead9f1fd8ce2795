"""Queries on invoices and their lines, and on the charges that they are made of."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.ids import OrganizationId, ProjectId
from control_plane.domain.invoice import GivenCredit, Invoice, InvoiceLine, LineKind, Usage
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.money import Nano
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import unit_of
from control_plane.domain.sla import SlaTier

_COLUMNS = ", ".join(field.name for field in fields(Invoice))
_VALUES = ", ".join(f":{field.name}" for field in fields(Invoice))
_INSERT = text(f"INSERT INTO invoices ({_COLUMNS}) VALUES ({_VALUES})")
_LINE = ", ".join(field.name for field in fields(InvoiceLine))
_LINES = Recordset(InvoiceLine, "lines")
_INSERT_LINES = text(f"""
INSERT INTO invoice_lines (invoice_id, organization_id, {_LINE})
SELECT :invoice_id, :organization_id, {_LINE} FROM {_LINES}
""")
_GET = text(f"""
SELECT {_COLUMNS} FROM invoices
WHERE id = :id AND (CAST(:organization_id AS uuid) IS NULL OR organization_id = :organization_id)
""")
_BY_ID = text(f"SELECT {_COLUMNS} FROM invoices WHERE id = ANY(:ids)")
_GET_LINES = text(f"SELECT {_LINE} FROM invoice_lines WHERE invoice_id = :invoice_id ORDER BY number")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM invoices
WHERE (CAST(:organization_id AS uuid) IS NULL OR organization_id = :organization_id)
  AND (CAST(:period AS timestamptz) IS NULL OR period = :period)
  AND (CAST(:before_at AS timestamptz) IS NULL OR (issued_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY issued_at DESC, id DESC LIMIT :limit
""")
_OF_PERIOD = text("SELECT number FROM invoices WHERE organization_id = :organization_id AND period = :period")
_ANY_OF_PERIOD = text("SELECT EXISTS (SELECT FROM invoices WHERE issuer = :issuer AND period = :period)")
_USAGE = text("""
SELECT c.project_id, p.name AS project, c.sku, c.purchase, c.sla, c.stopped, c.unused, s.gpu_count,
       c.nano_per_unit_hour, date_trunc('month', c.started_at, 'UTC') AS used_in,
       sum(c.unit_seconds)::bigint AS unit_seconds, sum(c.amount_nano)::bigint AS amount_nano
FROM charges c JOIN projects p ON p.id = c.project_id JOIN skus s ON s.name = c.sku
WHERE c.organization_id = :organization_id AND c.period = :period
GROUP BY c.project_id, p.name, c.sku, c.purchase, c.sla, c.stopped, c.unused, s.gpu_count, c.nano_per_unit_hour, used_in
ORDER BY p.name COLLATE "C", c.project_id, used_in, c.sku, c.purchase, c.sla, c.stopped, c.unused,
  c.nano_per_unit_hour
""")
OF_LINE = f"""
l.kind = '{LineKind.USAGE}' AND c.project_id = l.project_id AND c.sku = l.sku AND c.purchase = l.purchase
  AND c.sla = l.sla AND c.stopped = l.stopped AND c.unused = l.unused
  AND c.nano_per_unit_hour = l.nano_per_unit_hour AND date_trunc('month', c.started_at, 'UTC') = l.used_in
"""
"""SQL: whether charge `c`, which is booked in the month of an invoice of its customer, is in line `l` of the invoice:
`_USAGE` adds up by the same."""
# Credits and corrections of credits. How much of either is used, or taken back, follows from `_UNUSED_CREDITS`.
_CREDITS_LEFT = text(f"""
SELECT given.id, given.left_nano, given.reason, given.project_id, p.name AS project, given.lease_id, given.used_in
FROM (
  SELECT source.*, source.amount_nano + coalesce((
    SELECT sum(l.amount_nano) FROM invoice_lines l
    WHERE l.organization_id = :organization_id AND l.credit_id = source.id AND l.kind = '{LineKind.CREDIT}'
  ), 0)::bigint AS left_nano
  FROM (
    SELECT t.id, p.amount_nano, t.reason, t.project_id, b.lease_id, b.month AS used_in, t.recorded_at AS given_at
    FROM transactions t JOIN postings p ON p.transaction_id = t.id AND p.organization_id = t.organization_id
    JOIN ledger_accounts a ON a.id = p.account_id AND a.kind = '{AccountKind.WALLET}'
    LEFT JOIN sla_credits s ON s.transaction_id = t.id AND s.organization_id = t.organization_id
    LEFT JOIN sla_breaches b ON b.id = s.breach_id AND b.organization_id = s.organization_id
    WHERE t.organization_id = :organization_id AND t.kind = '{TransactionKind.CREDIT}' AND t.period <= :period
    UNION ALL
    SELECT n.id, n.credits_nano, n.reason, NULL, NULL, NULL, n.issued_at
    FROM credit_notes n WHERE n.organization_id = :organization_id AND n.credits_nano > 0
  ) source
) given LEFT JOIN projects p ON p.id = given.project_id AND p.organization_id = :organization_id
WHERE given.left_nano <> 0 ORDER BY given.given_at, given.id
""")


def _unused_credits(condition: str) -> str:
    """SQL: the credits of an organization that no invoice has used, of those whose transactions `t` meet a condition.

    What a credit note gave back of an invoice's credits may be used again.
    """
    return f"""
    coalesce((
      SELECT sum(p.amount_nano) FROM transactions t JOIN postings p ON p.transaction_id = t.id
      JOIN ledger_accounts a ON a.id = p.account_id
      WHERE t.organization_id = :organization_id AND t.kind = '{TransactionKind.CREDIT}' AND {condition}
        AND a.kind = '{AccountKind.WALLET}'
    ), 0)::bigint - coalesce((
      SELECT sum(credits_nano) FROM invoices WHERE organization_id = :organization_id
    ), 0)::bigint + coalesce((
      SELECT sum(credits_nano) FROM credit_notes WHERE organization_id = :organization_id
    ), 0)::bigint
    """


_UNUSED_CREDITS = text(f"SELECT {_unused_credits('t.period <= :period')}")
_BALANCES = text(f"""
SELECT s.posted_nano AS now_nano, s.posted_nano - coalesce((
  SELECT sum(p.amount_nano) FROM transactions t
  JOIN postings p ON p.transaction_id = t.id AND p.organization_id = t.organization_id
  JOIN ledger_accounts a ON a.id = p.account_id
  WHERE t.organization_id = s.organization_id AND t.period > :period AND a.kind = '{AccountKind.WALLET}'
), 0)::bigint AS at_end_nano, {_unused_credits("true")} - coalesce((
  SELECT sum(c.amount_nano) FROM charges c WHERE c.organization_id = s.organization_id AND c.period > :period
    AND NOT EXISTS (SELECT FROM invoices v WHERE v.organization_id = c.organization_id AND v.period = c.period)
), 0)::bigint AS unspent_credits_nano
FROM standings s WHERE s.organization_id = :organization_id
""")


@dataclass(frozen=True, slots=True)
class Balances:
    """The wallet of an organization."""

    now_nano: Nano
    at_end_nano: Nano
    """With what is booked up to the end of the month."""
    unspent_credits_nano: Nano
    """The credits that no invoice has used, less what was used after the month and is on no invoice yet."""


@dataclass(frozen=True, slots=True)
class _UsageRow:
    project_id: ProjectId
    project: str
    sku: str
    purchase: PurchaseKind
    sla: SlaTier
    stopped: bool
    unused: bool
    gpu_count: int
    nano_per_unit_hour: Nano
    used_in: datetime
    unit_seconds: int
    amount_nano: Nano


async def usage(connection: Connection, organization_id: OrganizationId, period: datetime) -> list[Usage]:
    """The charges that are booked in a month, added up by what a line of an invoice names, in order of its lines."""
    rows = await read(connection, _USAGE, _UsageRow, organization_id=organization_id, period=period)
    return [
        Usage(
            project_id=row.project_id,
            project=row.project,
            sku=row.sku,
            purchase=row.purchase,
            sla=row.sla,
            stopped=row.stopped,
            unused=row.unused,
            unit=unit_of(row.gpu_count),
            nano_per_unit_hour=row.nano_per_unit_hour,
            used_in=row.used_in,
            unit_seconds=row.unit_seconds,
            amount_nano=row.amount_nano,
        )
        for row in rows
    ]


async def unused_credits(connection: Connection, organization_id: OrganizationId, period: datetime) -> Nano:
    """Credits that are booked in the month or earlier and that no invoice has used.

    Negative where invoices used more than corrections have left of them.
    """
    (unused,) = await read(connection, _UNUSED_CREDITS, int, organization_id=organization_id, period=period)
    return Nano(unused)


async def credits_left(
    connection: Connection, organization_id: OrganizationId, period: datetime
) -> list[GivenCredit]:
    """Credits and corrections booked in the month or earlier of which something is left, the oldest first."""
    return await read(connection, _CREDITS_LEFT, GivenCredit, organization_id=organization_id, period=period)


async def balances(connection: Connection, organization_id: OrganizationId, period: datetime) -> Balances:
    """The wallet now and with what is booked up to the end of a month."""
    (found,) = await read(connection, _BALANCES, Balances, organization_id=organization_id, period=period)
    return found


async def number_of(connection: Connection, organization_id: OrganizationId, period: datetime) -> str | None:
    """The number of the invoice of a month; None while it has none."""
    return await read_one(connection, _OF_PERIOD, str, organization_id=organization_id, period=period)


async def any_of(connection: Connection, issuer: str, period: datetime) -> bool:
    """Whether somebody has an invoice of a month. The connection acts for the platform's organization."""
    (found,) = await read(connection, _ANY_OF_PERIOD, bool, issuer=issuer, period=period)
    return found


async def insert(connection: Connection, invoice: Invoice, lines: Sequence[InvoiceLine]) -> None:
    """Store an issued invoice. The connection acts for the platform's organization."""
    values = {field.name: getattr(invoice, field.name) for field in fields(Invoice)}
    values |= {"seller_address": list(invoice.seller_address), "address": list(invoice.address)}
    await write(connection, _INSERT, **values)
    await write(
        connection,
        _INSERT_LINES,
        invoice_id=invoice.id,
        organization_id=invoice.organization_id,
        lines=_LINES.document(lines),
    )


async def get(
    connection: Connection, invoice_id: UUID, organization_id: OrganizationId | None
) -> Invoice | None:
    """An invoice of an organization; of any one when it is None."""
    return await read_one(connection, _GET, Invoice, id=invoice_id, organization_id=organization_id)


async def by_id(connection: Connection, invoice_ids: Collection[UUID]) -> dict[UUID, Invoice]:
    found = await read(connection, _BY_ID, Invoice, ids=list(invoice_ids))
    return {invoice.id: invoice for invoice in found if invoice.id is not None}


async def lines(connection: Connection, invoice_id: UUID) -> list[InvoiceLine]:
    return await read(connection, _GET_LINES, InvoiceLine, invoice_id=invoice_id)


async def page(
    connection: Connection,
    organization_id: OrganizationId | None,
    *,
    period: datetime | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Invoice]:
    """Invoices of an organization or of all, newest first; `before` is the time and the id of the last one read."""
    return await read(
        connection,
        _PAGE,
        Invoice,
        organization_id=organization_id,
        period=period,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )
