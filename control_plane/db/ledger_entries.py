"""Queries on the entries of the ledger's accounts, over all customers. They answer only the platform's organization."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.money import Nano


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A posting to an account, with its transaction."""

    transaction_id: UUID
    organization_id: OrganizationId
    """Whose money moved."""
    organization: str
    """Its name."""
    kind: TransactionKind
    effective_at: datetime
    recorded_at: datetime
    period: datetime
    """The first instant of the month in which it is booked."""
    amount_nano: Nano
    """Credit positive, debit negative."""
    approved_by: str | None
    """The id of the subject that decided on it; None where nobody does."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class Wallet:
    """What we owe a customer, and what it owes us."""

    organization_id: OrganizationId
    organization: str
    created_at: datetime
    """Of the organization."""
    wallet_nano: Nano
    held_nano: Nano
    """Of this, what is set aside for the next hour of live leases."""
    receivable_nano: Nano
    """Credit positive: negative for what invoices left to pay."""


# Functions that run with their owner's rights: db/migrations/ledger_functions.py.
_ENTRIES = text("""
SELECT transaction_id, organization_id, organization, kind, effective_at, recorded_at, period, amount_nano,
       approved_by, reason
FROM ledger_entries(CAST(:account AS text), CAST(:organization_id AS uuid), CAST(:period AS timestamptz),
                    CAST(:before AS uuid), CAST(:limit AS integer))
""")
_WALLETS = text("""
SELECT organization_id, organization, created_at, wallet_nano, held_nano, receivable_nano
FROM ledger_wallets(CAST(:after_at AS timestamptz), CAST(:after_id AS uuid), CAST(:limit AS integer))
""")


async def entries(
    connection: Connection,
    account: AccountKind,
    *,
    organization_id: OrganizationId | None,
    period: datetime | None,
    before: UUID | None,
    limit: int,
) -> list[LedgerEntry]:
    """The entries of an account, newest first: of one organization, or of all.

    With `period`, the first instant of a month, only those that are booked in it. `before` is the transaction of the
    previous page's last entry.
    """
    values = {"organization_id": organization_id, "period": period, "before": before, "limit": limit}
    return await read(connection, _ENTRIES, LedgerEntry, account=account.value, **values)


async def wallets(connection: Connection, *, after: tuple[datetime, UUID] | None, limit: int) -> list[Wallet]:
    """The wallets of all customers, oldest customer first; `after` is creation time and id of the last one before."""
    return await read(
        connection,
        _WALLETS,
        Wallet,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )
