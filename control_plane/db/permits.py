"""Queries on ending permits: an operator's word that many failed proofs at an account are the provider's fault.

A permit lasts for a while and is never taken back; the table keeps who gave it and why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.ids import AccountName


@dataclass(frozen=True, slots=True)
class Permit:
    account: AccountName
    why: str
    actor: str
    at: datetime
    until: datetime


_INSERT = text("""
INSERT INTO ending_permits (id, account, why, actor, at, until) VALUES (:id, :account, :why, :actor, :at, :until)
""")
# The one that lasts longest.
_STANDING = text("""
SELECT DISTINCT ON (account) account, why, actor, at, until FROM ending_permits
WHERE until > :now AND (CAST(:account AS text) IS NULL OR account = :account) ORDER BY account, until DESC
""")


async def insert(connection: AsyncConnection, permit_id: UUID, permit: Permit) -> None:
    values = {
        "id": permit_id,
        "account": permit.account,
        "why": permit.why,
        "actor": permit.actor,
        "at": permit.at,
        "until": permit.until,
    }
    await connection.execute(_INSERT, values)


async def standing(
    connection: AsyncConnection, *, now: datetime, account: AccountName | None = None
) -> Sequence[Permit]:
    """The permits that last at `now`, of one account or of every, one each."""
    found = await rows(connection, _STANDING, now=now, account=account)
    return [Permit(AccountName(row.account), row.why, row.actor, row.at, row.until) for row in found]
