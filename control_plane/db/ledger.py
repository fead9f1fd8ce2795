"""Queries on money: transactions and postings, holds, the standing's cached balance."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db.engine import rows
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.ledger import AccountKind, Transaction
from control_plane.domain.money import Nano

_TRANSACTION = text("""
INSERT INTO transactions (id, organization_id, key, kind, recorded_at)
VALUES (:id, :organization_id, :key, :kind, :now) ON CONFLICT (key) DO NOTHING
""")
_POSTINGS = text("""
INSERT INTO postings (transaction_id, line, organization_id, account_kind, amount_nano)
SELECT :id, line, :organization_id, kind, amount
FROM unnest(CAST(:lines AS int[]), CAST(:kinds AS text[]), CAST(:amounts AS bigint[])) AS p(line, kind, amount)
""")
_ADD_TO_BALANCE = text("""
UPDATE standings SET posted_nano = posted_nano + :amount WHERE organization_id = :organization_id
""")


async def post(
    connection: AsyncConnection, transaction: Transaction, *, transaction_id: UUID, now: datetime
) -> bool:
    """Post once: a key that is known already changes nothing and answers False."""
    organization_id = transaction.organization_id
    inserted = await connection.execute(
        _TRANSACTION,
        {
            "id": transaction_id,
            "organization_id": organization_id,
            "key": transaction.key,
            "kind": transaction.kind.value,
            "now": now,
        },
    )
    if not inserted.rowcount:
        return False
    await connection.execute(
        _POSTINGS,
        {
            "id": transaction_id,
            "organization_id": organization_id,
            "lines": list(range(1, len(transaction.postings) + 1)),
            "kinds": [posting.kind.value for posting in transaction.postings],
            "amounts": [posting.amount_nano for posting in transaction.postings],
        },
    )
    wallet = sum(p.amount_nano for p in transaction.postings if p.kind is AccountKind.WALLET)
    await connection.execute(_ADD_TO_BALANCE, {"amount": wallet, "organization_id": organization_id})
    return True


@dataclass(frozen=True, slots=True)
class Funded:
    """A ready lease with what its funding is decided on."""

    lease_id: LeaseId
    organization_id: OrganizationId
    gpu_count: int
    nano_per_gpu_hour: Nano
    ready_at: datetime
    held_nano: Nano
    posted_nano: Nano
    warned: bool


_FUNDED = """
SELECT l.id, l.organization_id, l.gpu_count, l.nano_per_gpu_hour, l.ready_at,
       h.amount_nano AS held_nano, l.funding_warned_at IS NOT NULL AS warned, coalesce(c.amount, 0) AS posted_nano
FROM leases l JOIN holds h ON h.lease_id = l.id
LEFT JOIN LATERAL (SELECT sum(amount_nano)::bigint AS amount FROM charges c WHERE c.lease_id = l.id) c ON true
WHERE l.state = 'ready' AND h.released_at IS NULL
"""
_READY = text(_FUNDED + " AND l.id > :after ORDER BY l.id LIMIT :limit")
_ONE_READY = text(_FUNDED + " AND l.id = :id")
_CHANGE_HOLD = text("""
WITH changed AS (
  UPDATE holds SET amount_nano = amount_nano + :more WHERE lease_id = :lease_id AND released_at IS NULL
  RETURNING organization_id
)
UPDATE standings SET held_nano = held_nano + :more FROM changed
WHERE standings.organization_id = changed.organization_id
""")
# A posted charge comes out of the hold; a hold that is used up keeps nothing back. The last charge returns the rest.
_USE_HOLD = text("""
WITH before AS (
  SELECT lease_id, organization_id, amount_nano FROM holds
  WHERE lease_id = :lease_id AND released_at IS NULL FOR UPDATE
), used AS (
  UPDATE holds SET
    amount_nano = CASE WHEN :final THEN 0 ELSE before.amount_nano - least(before.amount_nano, :amount) END,
    released_at = CASE WHEN :final THEN CAST(:now AS timestamptz) END
  FROM before WHERE holds.lease_id = before.lease_id
)
UPDATE standings SET held_nano = held_nano
  - CASE WHEN :final THEN before.amount_nano ELSE least(before.amount_nano, :amount) END
FROM before WHERE standings.organization_id = before.organization_id
""")
_WARNED = text("""
WITH warned AS (
  UPDATE leases SET funding_warned_at = :now WHERE id = :id AND funding_warned_at IS NULL
  RETURNING id, organization_id, state
)
INSERT INTO journal (organization_id, lease_id, at, actor, event, state_before, state_after, why)
SELECT organization_id, id, :now, :actor, 'funding_warned', state, state, :why FROM warned
""")
_UNWARNED = text(
    "UPDATE leases SET funding_warned_at = NULL WHERE id = :id AND funding_warned_at IS NOT NULL"
)


def _funded(row: Any) -> Funded:
    return Funded(
        lease_id=LeaseId(row.id),
        organization_id=OrganizationId(row.organization_id),
        gpu_count=row.gpu_count,
        nano_per_gpu_hour=Nano(row.nano_per_gpu_hour),
        ready_at=row.ready_at,
        held_nano=Nano(row.held_nano),
        posted_nano=Nano(row.posted_nano),
        warned=row.warned,
    )


async def ready_leases(connection: AsyncConnection, *, after: UUID, limit: int) -> list[Funded]:
    """Ready leases in id order, after the last one of the page before."""
    return [_funded(row) for row in await rows(connection, _READY, after=after, limit=limit)]


async def funded(connection: AsyncConnection, lease_id: LeaseId) -> Funded | None:
    """One lease's funding; None when it is not ready any more."""
    found = await rows(connection, _ONE_READY, id=lease_id)
    return _funded(found[0]) if found else None


async def extend_hold(connection: AsyncConnection, lease_id: LeaseId, more: Nano) -> None:
    """Set more aside. The caller holds the standing's lock and has checked what is available."""
    await connection.execute(_CHANGE_HOLD, {"lease_id": lease_id, "more": more})
    await connection.execute(_UNWARNED, {"id": lease_id})


async def use_hold(
    connection: AsyncConnection, lease_id: LeaseId, amount: Nano, *, final: bool, now: datetime
) -> None:
    values = {"lease_id": lease_id, "amount": amount, "final": final, "now": now}
    await connection.execute(_USE_HOLD, values)


async def record_warning(
    connection: AsyncConnection, lease_id: LeaseId, *, why: str, actor: str, now: datetime
) -> None:
    await connection.execute(_WARNED, {"id": lease_id, "why": why, "actor": actor, "now": now})


_LEDGER_TOTALS = text("""
SELECT account_kind, sum(amount_nano)::bigint AS amount FROM postings
WHERE CAST(:organization_id AS uuid) IS NULL OR organization_id = :organization_id GROUP BY account_kind
""")


async def totals(
    connection: AsyncConnection, organization_id: OrganizationId | None = None
) -> dict[AccountKind, Nano]:
    """Sum of postings per account kind, of one organization or of all."""
    found = await rows(connection, _LEDGER_TOTALS, organization_id=organization_id)
    return {AccountKind(row.account_kind): Nano(row.amount) for row in found}


async def lock_standings(connection: AsyncConnection, organization_ids: Sequence[UUID]) -> None:
    """Lock in id order before touching holds: standing, then hold."""
    statement = text("""
    SELECT organization_id FROM standings WHERE organization_id = ANY(:ids) ORDER BY organization_id FOR UPDATE
    """)
    await connection.execute(statement, {"ids": sorted(set(organization_ids))})
