"""Queries on what the payment port posted."""

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read_one
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import AccountKind, TransactionKind
from control_plane.domain.money import Nano
from control_plane.domain.payment import back_prefixes

_CASH = f"""
SELECT sum(abs(p.amount_nano))::bigint FROM transactions t
JOIN postings p ON p.transaction_id = t.id AND p.organization_id = t.organization_id
JOIN ledger_accounts a ON a.id = p.account_id AND a.kind = '{AccountKind.CASH}'
WHERE t.organization_id = :organization_id
"""
_POSTED = text(f"{_CASH} AND t.key = :key HAVING count(*) > 0")
_GIVEN_BACK = text(f"""{_CASH} AND t.kind IN ('{TransactionKind.REFUND}', '{TransactionKind.CHARGE_BACK}')
AND (starts_with(t.key, :refunds) OR starts_with(t.key, :charge_backs)) HAVING count(*) > 0
""")


async def posted(connection: Connection, organization_id: OrganizationId, key: str) -> Nano | None:
    """What the transaction with a key moved in cash; None when there is none."""
    return await read_one(connection, _POSTED, Nano, organization_id=organization_id, key=key)


async def given_back(connection: Connection, organization_id: OrganizationId, payment: str) -> Nano:
    """What was refunded of a payment, or charged back."""
    refunds, charge_backs = back_prefixes(payment)
    values = {"organization_id": organization_id, "refunds": refunds, "charge_backs": charge_backs}
    found = await read_one(connection, _GIVEN_BACK, Nano, **values)
    return Nano(0) if found is None else found
