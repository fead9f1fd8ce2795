"""Queries on a customer's balance: what it is now, and the transactions of the ledger that made it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import TextClause, text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one
from control_plane.domain.balance import Balance
from control_plane.domain.ids import LeaseId, OrganizationId, ProjectId
from control_plane.domain.lease import LeaseState
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.money import Nano


@dataclass(frozen=True, slots=True)
class BalanceEntry:
    """A transaction of the ledger as its customer reads it."""

    id: UUID
    number: int
    """Counts the organization's transactions in the order in which they were posted."""
    kind: TransactionKind
    effective_at: datetime
    recorded_at: datetime
    period: datetime
    """The first instant of the month in which it is booked."""
    amount_nano: Nano
    """What it added to the balance; negative for what it took."""
    balance_nano: Nano
    """The balance after it."""
    due_change_nano: Nano
    """What it added to what invoices left to pay."""
    due_nano: Nano
    """What invoices left to pay after it."""
    reason: str | None
    """Of one that somebody decided on."""
    charge_id: UUID | None
    lease_id: LeaseId | None
    lease_name: str | None
    project_id: ProjectId | None
    project: str | None
    started_at: datetime | None
    """Start of the time that was charged."""
    ended_at: datetime | None
    unused: bool | None
    """Of a charge: whether it is what its customer did not use of a term."""
    invoice_id: UUID | None
    invoice_number: str | None


# A lease that is ready is billed at the price of a stopped machine after an odd number of switches. One that is
# committed to takes nothing from what is available: its whole term was set aside.
_BALANCE = text(f"""
SELECT s.posted_nano, s.held_nano, -s.receivable_nano AS due_nano, running.leases AS running_leases,
       running.nano_per_hour AS running_nano_per_hour, coalesce(terms.limit_nano, 0) AS credit_limit_nano
FROM standings s CROSS JOIN LATERAL (
  SELECT count(*) AS leases, coalesce(sum(l.units * CASE WHEN cardinality(l.switched_at) % 2 = 1
    THEN l.stopped_nano_per_unit_hour ELSE l.nano_per_unit_hour END), 0)::bigint AS nano_per_hour
  FROM leases l
  WHERE l.organization_id = s.organization_id AND l.state = '{LeaseState.READY}' AND l.committed_days IS NULL
) running
LEFT JOIN credit_terms terms ON terms.organization_id = s.organization_id
WHERE s.organization_id = :organization_id
""")


def _page(conditions: str) -> TextClause:
    """A statement for a page of entries. The rows are chosen by an index, and only then joined to what they are for.

    A charge, an invoice and a credit note are named by the transaction's key (`domain/ledger.py`).
    """
    return text(f"""
    WITH page AS (
      SELECT * FROM transactions
      WHERE organization_id = :organization_id AND number < :before {conditions}
      ORDER BY number DESC LIMIT :limit
    )
    SELECT t.id, t.number, t.kind, t.effective_at, t.recorded_at, t.period, moved.wallet AS amount_nano,
           t.wallet_after_nano AS balance_nano, -moved.receivable AS due_change_nano,
           -t.receivable_after_nano AS due_nano, t.reason, c.id AS charge_id, c.lease_id, l.name AS lease_name,
           t.project_id, p.name AS project, c.started_at, c.ended_at, c.unused,
           i.id AS invoice_id, i.number AS invoice_number
    FROM page t
    CROSS JOIN LATERAL (
      SELECT coalesce(sum(amount_nano) FILTER (WHERE a.kind = '{AccountKind.WALLET}'), 0)::bigint AS wallet,
             coalesce(sum(amount_nano) FILTER (WHERE a.kind = '{AccountKind.RECEIVABLE}'), 0)::bigint AS receivable
      FROM postings JOIN ledger_accounts a ON a.id = postings.account_id
      WHERE transaction_id = t.id AND postings.organization_id = t.organization_id
    ) moved
    LEFT JOIN projects p ON p.id = t.project_id
    LEFT JOIN charges c
      ON c.id = CASE WHEN t.kind = '{TransactionKind.USAGE}' THEN split_part(t.key, ':', 2)::uuid END
    LEFT JOIN leases l ON l.id = c.lease_id
    LEFT JOIN credit_notes n
      ON n.id = CASE WHEN t.kind = '{TransactionKind.CREDIT_NOTE}' THEN split_part(t.key, ':', 2)::uuid END
    LEFT JOIN invoices i
      ON i.id = CASE WHEN t.kind = '{TransactionKind.INVOICE}' THEN split_part(t.key, ':', 2)::uuid
                     ELSE n.invoice_id END
    ORDER BY t.number DESC
    """)


PAGES = {
    (of_month, kind): _page(
        ("AND period = :period" if of_month else "") + (f" AND kind = '{kind}'" if kind else "")
    )
    for of_month in (False, True)
    for kind in (None, *TransactionKind)
}
"""By whether a month is asked for, and the kind. Each has a plan of its own: a condition such as `:kind IS NULL OR ...`
in a prepared statement would keep PostgreSQL from the index that fits.
"""
_NUMBER_MAX = 2**63 - 1


async def get(connection: Connection, organization_id: OrganizationId) -> Balance | None:
    return await read_one(connection, _BALANCE, Balance, organization_id=organization_id)


async def entries(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    period: datetime | None,
    kind: TransactionKind | None,
    before: int | None,
    limit: int,
) -> list[BalanceEntry]:
    """Transactions of an organization, newest first; `before` is the number of the previous page's last one.

    With `period`, the first instant of a month, only those that are booked in it.
    """
    values = {"organization_id": organization_id, "before": before or _NUMBER_MAX, "limit": limit}
    if period is not None:
        values["period"] = period
    return await read(connection, PAGES[period is not None, kind], BalanceEntry, **values)
