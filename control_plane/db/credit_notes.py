"""Queries on credit notes and their lines, and on what they come to for an invoice."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, read_one, write
from control_plane.domain.credit_note import CreditNote, CreditNoteLine
from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import Credited
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.money import NANO_PER_CENT, Nano

_COLUMNS = ", ".join(field.name for field in fields(CreditNote))
_VALUES = ", ".join(f":{field.name}" for field in fields(CreditNote))
_INSERT = text(f"INSERT INTO credit_notes ({_COLUMNS}) VALUES ({_VALUES})")
_LINES = Recordset(CreditNoteLine, "lines")
_LINE = ", ".join(field.name for field in fields(CreditNoteLine))
_INSERT_LINES = text(f"""
INSERT INTO credit_note_lines (credit_note_id, organization_id, invoice_id, {_LINE})
SELECT :credit_note_id, :organization_id, :invoice_id, {_LINE} FROM {_LINES}
""")
_GET = text(f"""
SELECT {_COLUMNS} FROM credit_notes
WHERE id = :id AND (CAST(:organization_id AS uuid) IS NULL OR organization_id = :organization_id)
""")
_GET_LINES = text(f"SELECT {_LINE} FROM credit_note_lines WHERE credit_note_id = :id ORDER BY number")
_OF_INVOICE = text(
    f"SELECT {_COLUMNS} FROM credit_notes WHERE invoice_id = :invoice_id ORDER BY issued_at, id"
)
_PAGE = text(f"""
SELECT {_COLUMNS} FROM credit_notes
WHERE (CAST(:organization_id AS uuid) IS NULL OR organization_id = :organization_id)
  AND (CAST(:before_at AS timestamptz) IS NULL OR (issued_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY issued_at DESC, id DESC LIMIT :limit
""")
_CREDITED = text("""
SELECT invoice_id, sum(net_cents)::bigint AS net_cents, sum(tax_cents)::bigint AS tax_cents,
       sum(credits_nano)::bigint AS credits_nano
FROM credit_notes WHERE invoice_id = ANY(:ids) GROUP BY invoice_id
""")
_CREDITED_LINES = text("""
SELECT invoice_line, sum(cents)::bigint AS cents FROM credit_note_lines WHERE invoice_id = :invoice_id
GROUP BY invoice_line
""")

_RECONCILED = text(f"""
SELECT organization_id, sum(total)::bigint AS totals, sum(posted)::bigint AS postings
FROM (
  SELECT n.organization_id, (n.net_cents + n.tax_cents) * {NANO_PER_CENT} AS total, -n.credits_nano AS posted
  FROM credit_notes n JOIN transactions t ON t.organization_id = n.organization_id
    AND t.key = 'credit_note:' || replace(n.id::text, '-', '')
  WHERE n.organization_id = ANY(:ids) AND t.period = :period
  UNION ALL
  SELECT t.organization_id, 0, p.amount_nano
  FROM transactions t JOIN postings p ON p.transaction_id = t.id AND p.organization_id = t.organization_id
  JOIN ledger_accounts a ON a.id = p.account_id
    AND a.kind IN ('{AccountKind.WALLET}', '{AccountKind.RECEIVABLE}')
  WHERE t.organization_id = ANY(:ids) AND t.period = :period AND t.kind = '{TransactionKind.CREDIT_NOTE}'
) d GROUP BY organization_id
""")


@dataclass(frozen=True, slots=True)
class _Credited:
    invoice_id: UUID
    net_cents: int
    tax_cents: int
    credits_nano: Nano


@dataclass(frozen=True, slots=True)
class _CreditedLine:
    invoice_line: int
    cents: int


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What the credit notes of a customer that are booked in a month come to, and what the ledger has of them."""

    organization_id: OrganizationId
    totals: Nano
    postings: Nano


async def insert(connection: Connection, note: CreditNote, lines: Sequence[CreditNoteLine]) -> None:
    """Store a credit note. The connection acts for the platform's organization."""
    await write(
        connection, _INSERT, **{field.name: getattr(note, field.name) for field in fields(CreditNote)}
    )
    await write(
        connection,
        _INSERT_LINES,
        credit_note_id=note.id,
        organization_id=note.organization_id,
        invoice_id=note.invoice_id,
        lines=_LINES.document(lines),
    )


async def get(
    connection: Connection, credit_note_id: UUID, organization_id: OrganizationId | None
) -> CreditNote | None:
    """A credit note of an organization; of any one when it is None."""
    return await read_one(connection, _GET, CreditNote, id=credit_note_id, organization_id=organization_id)


async def lines(connection: Connection, credit_note_id: UUID) -> list[CreditNoteLine]:
    return await read(connection, _GET_LINES, CreditNoteLine, id=credit_note_id)


async def of_invoice(connection: Connection, invoice_id: UUID) -> list[CreditNote]:
    """The credit notes of an invoice, the oldest first."""
    return await read(connection, _OF_INVOICE, CreditNote, invoice_id=invoice_id)


async def credited_lines(connection: Connection, invoice_id: UUID) -> dict[int, int]:
    """By how many cents credit notes corrected each line of an invoice, by its number."""
    found = await read(connection, _CREDITED_LINES, _CreditedLine, invoice_id=invoice_id)
    return {line.invoice_line: line.cents for line in found}


async def credited(connection: Connection, invoice_ids: Sequence[UUID]) -> dict[UUID, Credited]:
    """What the credit notes of invoices come to. Those without any are left out."""
    found = await read(connection, _CREDITED, _Credited, ids=list(invoice_ids))
    return {
        row.invoice_id: Credited(
            net_cents=row.net_cents, tax_cents=row.tax_cents, credits_nano=row.credits_nano
        )
        for row in found
    }


async def page(
    connection: Connection,
    organization_id: OrganizationId | None,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[CreditNote]:
    """Those of an organization or of all, newest first; `before` is the time and the id of the last one read."""
    return await read(
        connection,
        _PAGE,
        CreditNote,
        organization_id=organization_id,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )


async def reconciled(
    connection: Connection, customer_ids: Sequence[OrganizationId], *, period: datetime
) -> list[Reconciled]:
    """The credit notes of these customers that are booked in the month, with what the ledger has of them."""
    return await read(connection, _RECONCILED, Reconciled, ids=list(customer_ids), period=period)
