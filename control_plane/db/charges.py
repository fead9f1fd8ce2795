"""Queries on charges for finance: what a charge follows from, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.invoices import OF_LINE
from control_plane.db.journal import Line
from control_plane.db.rows import read, read_one
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId
from control_plane.domain.journal import Note
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.money import Nano
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sla import SlaTier

_OWNER = text("""
SELECT id FROM billed_organization(CAST(:lease_id AS uuid), CAST(:charge_id AS uuid)) AS id WHERE id IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class LeaseCharge:
    """A charge of a lease."""

    id: UUID
    lease_id: LeaseId
    number: int
    """Of its interval, in the lease."""
    started_at: datetime
    ended_at: datetime
    unit_seconds: int
    stopped: bool
    unused: bool
    amount_nano: Nano
    period: datetime
    """The first instant of the month in which it is booked."""


@dataclass(frozen=True, slots=True)
class LineOfInvoice:
    """The line of an invoice that a charge is in."""

    invoice_id: UUID
    invoice: str
    """The number of the invoice."""
    number: int
    """The line's place, from 1."""


@dataclass(frozen=True, slots=True)
class FullCharge(LeaseCharge):
    """A charge beside its interval and its price book."""

    organization_id: OrganizationId
    organization: str
    machine_id: MachineId
    sku: str
    purchase: PurchaseKind
    sla: SlaTier
    nano_per_unit_hour: Nano
    rated_at: datetime
    metered_from: datetime | None
    """Start of its interval; None when there is none, which is an error of ours. So are the next ones."""
    metered_until: datetime | None
    unit_seconds_before: int | None
    metered_unit_seconds: int | None
    metered_at: datetime | None
    price_book: int
    price_book_from: datetime
    list_nano_per_unit_hour: Nano
    """What the price book said when the lease was admitted; of a stopped machine, the price itself."""


@dataclass(frozen=True, slots=True)
class ChargePosting:
    """A posting of the transaction of a charge."""

    transaction_id: UUID
    account: AccountKind
    amount_nano: Nano
    """Credit positive."""
    effective_at: datetime
    period: datetime
    recorded_at: datetime


_OF_LEASE = text("""
SELECT id, lease_id, number, started_at, ended_at, unit_seconds, stopped, unused, amount_nano, period FROM charges
WHERE organization_id = :organization_id AND lease_id = :lease_id AND number > CAST(:after AS bigint)
ORDER BY number LIMIT :limit
""")
_OF_INVOICE_LINE = text(f"""
SELECT c.id, c.number, c.started_at, c.ended_at, c.unit_seconds, c.stopped, c.unused, c.amount_nano,
       c.period, c.lease_id
FROM invoice_lines l JOIN invoices i ON i.id = l.invoice_id AND i.organization_id = l.organization_id
JOIN charges c ON c.organization_id = i.organization_id AND c.period = i.period AND c.started_at >= l.used_in
  AND {OF_LINE}
WHERE l.organization_id = :organization_id AND l.invoice_id = :invoice_id AND l.number = :line
  AND (CAST(:after_at AS timestamptz) IS NULL OR (c.started_at, c.id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY c.started_at, c.id LIMIT :limit
""")
_LINE_OF = text(f"""
SELECT i.id AS invoice_id, i.number AS invoice, l.number
FROM charges c JOIN invoices i ON i.organization_id = c.organization_id AND i.period = c.period
JOIN invoice_lines l ON l.invoice_id = i.id AND l.organization_id = i.organization_id AND {OF_LINE}
WHERE c.organization_id = :organization_id AND c.id = :id
""")
_GET = text("""
SELECT c.id, c.organization_id, o.name AS organization, c.lease_id, c.machine_id, c.number, c.sku, c.purchase, c.sla,
       c.started_at, c.ended_at, c.unit_seconds, c.stopped, c.unused, c.nano_per_unit_hour, c.amount_nano, c.period,
       c.rated_at, i.started_at AS metered_from, i.ended_at AS metered_until, i.unit_seconds_before,
       i.unit_seconds AS metered_unit_seconds, i.recorded_at AS metered_at, c.price_book,
       b.effective_from AS price_book_from, c.list_nano_per_unit_hour
FROM charges c JOIN organizations o ON o.id = c.organization_id JOIN price_books b ON b.version = c.price_book
LEFT JOIN intervals i ON i.lease_id = c.lease_id AND i.number = c.number
WHERE c.organization_id = :organization_id AND c.id = :id
""")
# Only what starts, stops or reprices the bill: changes of the lease's state, and of its machine's power.
_EVENTS = f"""
SELECT number, at, actor_kind, actor, request_id, event, machine_id, state_before, state_after, why, transaction,
       transaction AS settled
FROM journal
WHERE organization_id = :organization_id AND lease_id = :lease_id
  AND (machine_id IS NULL AND state_before IS DISTINCT FROM state_after OR event = '{Note.POWER_CHANGED}')
"""
_AROUND = text(f"""
(({_EVENTS} AND at <= :since ORDER BY number DESC LIMIT 1)
 UNION ALL ({_EVENTS} AND at >= :until ORDER BY number LIMIT 1)) ORDER BY number
""")
_POSTINGS = text(f"""
SELECT t.id AS transaction_id, a.kind AS account, p.amount_nano, t.effective_at, t.period, t.recorded_at
FROM transactions t JOIN postings p ON p.transaction_id = t.id AND p.organization_id = t.organization_id
JOIN ledger_accounts a ON a.id = p.account_id
WHERE t.organization_id = :organization_id AND t.kind = '{TransactionKind.USAGE}' AND t.key = :key ORDER BY p.line
""")


async def owner(
    connection: Connection, *, lease_id: LeaseId | None = None, charge_id: UUID | None = None
) -> OrganizationId | None:
    """Whose lease or charge it is. None when there is none, or unless the connection acts for the platform."""
    return await read_one(connection, _OWNER, OrganizationId, lease_id=lease_id, charge_id=charge_id)


async def of_lease(
    connection: Connection, organization_id: OrganizationId, lease_id: LeaseId, *, after: int, limit: int
) -> list[LeaseCharge]:
    """The charges of a lease in the order of their numbers, behind `after`."""
    values = {"organization_id": organization_id, "lease_id": lease_id, "after": after, "limit": limit}
    return await read(connection, _OF_LEASE, LeaseCharge, **values)


async def of_invoice_line(
    connection: Connection,
    organization_id: OrganizationId,
    invoice_id: UUID,
    line: int,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[LeaseCharge]:
    """The charges that a line of an invoice adds up, oldest first; none of a line that is no usage.

    `after` is start and id of the previous page's last charge.
    """
    return await read(
        connection,
        _OF_INVOICE_LINE,
        LeaseCharge,
        organization_id=organization_id,
        invoice_id=invoice_id,
        line=line,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def invoice_line(
    connection: Connection, organization_id: OrganizationId, charge_id: UUID
) -> LineOfInvoice | None:
    """The line of an invoice that a charge is in; None while the month in which it is booked has no invoice."""
    return await read_one(connection, _LINE_OF, LineOfInvoice, organization_id=organization_id, id=charge_id)


async def get(connection: Connection, organization_id: OrganizationId, charge_id: UUID) -> FullCharge | None:
    return await read_one(connection, _GET, FullCharge, organization_id=organization_id, id=charge_id)


async def events_around(connection: Connection, charge: FullCharge) -> Sequence[Line]:
    """The journal's last line about the bill of the lease at the charge's start, and the first one at its end."""
    return await read(
        connection,
        _AROUND,
        Line,
        organization_id=charge.organization_id,
        lease_id=charge.lease_id,
        since=charge.started_at,
        until=charge.ended_at,
    )


async def postings(
    connection: Connection, organization_id: OrganizationId, charge_id: UUID
) -> Sequence[ChargePosting]:
    """The postings of a charge; none of one that costs nothing."""
    key = f"charge:{charge_id.hex}"
    return await read(connection, _POSTINGS, ChargePosting, organization_id=organization_id, key=key)
