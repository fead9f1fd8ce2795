"""A customer's balance, and the transactions that made it."""

from datetime import datetime

from control_plane.db import balance
from control_plane.db.balance import BalanceEntry
from control_plane.domain.balance import Balance
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import TransactionKind
from control_plane.world import World

__all__ = ["Balance", "BalanceEntry"]  # Controllers name these, and do not import the layer below.


async def show(world: World, organization_id: OrganizationId) -> Balance:
    """The balance of an organization as it is now."""
    async with world.db.reading(organization_id) as connection:
        found = await balance.get(connection, organization_id)
    if found is None:
        raise LookupError(f"organization {organization_id} does not exist")
    return found


async def entries(
    world: World,
    organization_id: OrganizationId,
    *,
    period: datetime | None = None,
    kind: TransactionKind | None = None,
    before: int | None = None,
    limit: int,
) -> list[BalanceEntry]:
    """Transactions of an organization, newest first, before the one with the number `before`.

    With `period`, the first instant of a month, only those that are booked in it.
    """
    async with world.db.reading(organization_id) as connection:
        return await balance.entries(
            connection, organization_id, period=period, kind=kind, before=before, limit=limit
        )
