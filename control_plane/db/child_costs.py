"""Queries on what children cost that outlived their machines: what lists showed of them, kept for finance.

The function `child_costs` of the database answers across tenants, and only while the API acts for the platform's
organization.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Recordset, read, write
from control_plane.domain.child import ListedChild
from control_plane.domain.child_cost import ChildCost
from control_plane.domain.ids import AccountName

CHILDREN_PER_QUERY = 500

_LISTED = Recordset(ListedChild, "listed")
# One that a list lacked was seen last on the list before, which is the account's last one that was believed. One that
# is listed again was there all the time. A child whose price is not known at the moment is not gone.
_RECORD = text(f"""
WITH listed AS MATERIALIZED (
  SELECT kind, ref, launch_key, machine_id, nano_per_hour, left_at FROM {_LISTED}
), account AS MATERIALIZED (
  SELECT name, provider, children_listed_at FROM provider_accounts WHERE name = :account
), gone AS (
  UPDATE priced_children p
  SET gone_at = :now, last_seen_at = greatest(p.first_seen_at, least(a.children_listed_at, :now))
  FROM account a
  WHERE p.account = a.name AND p.gone_at IS NULL AND NOT EXISTS (
    SELECT FROM listed WHERE listed.kind = p.kind AND listed.ref = p.ref AND listed.launch_key = p.launch_key)
)
INSERT INTO priced_children AS p
  (account, provider, kind, ref, launch_key, nano_per_hour, first_seen_at, left_at, machine_id)
SELECT a.name, a.provider, kind, ref, launch_key, nano_per_hour, :now, left_at, machine_id
FROM listed CROSS JOIN account a WHERE nano_per_hour IS NOT NULL AND NOT EXISTS (
  SELECT FROM priced_children k
  WHERE k.account = a.name AND k.kind = listed.kind AND k.ref = listed.ref AND k.launch_key = listed.launch_key
    AND k.gone_at IS NULL AND (k.left_at IS NOT NULL OR listed.left_at IS NULL))
ON CONFLICT (account, kind, ref, launch_key) DO UPDATE SET
  last_seen_at = NULL, gone_at = NULL, left_at = coalesce(p.left_at, excluded.left_at),
  machine_id = coalesce(p.machine_id, excluded.machine_id)
""")


async def record(
    connection: Connection, account: AccountName, listed: Sequence[ListedChild], *, now: datetime
) -> None:
    """Store what the account's list of `now` shows of the children of ours. While it shows the same, nothing is
    written. Call it before the time of that list is stored.
    """
    await write(connection, _RECORD, listed=_LISTED.document(listed), account=account, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row(ChildCost):
    id: UUID


_COLUMNS = ", ".join(field.name for field in fields(_Row))
_PAGE = text(f"""
SELECT {_COLUMNS} FROM child_costs(CAST(:since AS timestamptz), CAST(:until AS timestamptz), CAST(:provider AS text),
  CAST(:after AS uuid), CAST(:limit AS integer))
""")


async def of_month(
    connection: Connection, *, since: datetime, until: datetime, provider: str | None = None
) -> AsyncIterator[Sequence[ChildCost]]:
    """Everything that was left behind from `since` to `until`, of a provider or of all, some hundred at a time."""
    after: UUID | None = None
    while True:
        values = {"since": since, "until": until, "provider": provider, "after": after}
        rows = await read(connection, _PAGE, _Row, **values, limit=CHILDREN_PER_QUERY)
        yield rows
        if len(rows) < CHILDREN_PER_QUERY:
            return
        after = rows[-1].id
