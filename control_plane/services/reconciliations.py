"""Reconciliations of periods: finance asks for one, and reads what the reconciler found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

from control_plane.db import organizations, reconciliation_batches, reconciliations
from control_plane.db.connection import Connection
from control_plane.db.reconciliation_batches import Batch, Difference
from control_plane.db.reconciliations import Reconciliation
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.period import month_text
from control_plane.domain.reconciliation import OF_CUSTOMERS, Amounts, Sides, sides
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.outcomes import reconciliations as outcomes
from control_plane.world import World

__all__ = ["Difference", "Reconciliation"]  # For controllers, which must not import the layer below.

_NONE = Refused(
    RefusalCode.NOT_FOUND, "There is no such reconciliation; GET /v1/finance/reconciliations lists them."
)


@dataclass(frozen=True, slots=True)
class Found:
    """A reconciliation with what was found so far."""

    asked: Reconciliation
    customers: int
    """Examined so far."""
    remaining: int | None
    """To be examined; None while the first ones are."""
    links: tuple[Sides, ...]
    """Each link over the customers examined so far."""
    differing_customers: int
    not_invoiced: Nano
    """Charges of customers that have no invoice of the month yet."""
    examined_at: datetime | None
    """When the last ones were examined."""

    @property
    def is_running(self) -> bool:
        return self.remaining != 0

    @property
    def differs(self) -> bool:
        """Whether a customer's link differs, or a total that is no customer's.

        A customer with too much and one with too little are two differences, although their sum is none.
        """
        return self.differing_customers > 0 or any(link.difference_nano for link in self.links)


@dataclass(frozen=True, slots=True)
class NamedDifference:
    difference: Difference
    customer: str
    """The name of the organization."""

    @property
    def sides(self) -> Sides:
        return Sides(self.difference.link, self.difference.before_nano, self.difference.after_nano)


@dataclass(frozen=True, slots=True)
class ReconciledCustomer:
    """What the links of a customer came to, whether they agree or not."""

    customer_id: OrganizationId
    customer: str
    """The name of the organization."""
    links: tuple[Sides, ...]

    @property
    def differs(self) -> bool:
        return any(link.difference_nano for link in self.links)


async def create(
    connection: Connection, world: World, platform: OrganizationId, month: datetime, *, by: str
) -> Found | Refused:
    """Ask for a month to be reconciled. The reconciler does it. Refused for a month that has not begun."""
    now = world.now()
    if now < month:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{month_text(month)} has not begun.")
    asked = await outcomes.ask(
        connection,
        platform,
        month,
        reconciliation_id=world.new_id(),
        by=by,
        all_customers=True,
        now=now,
    )
    return _found(asked, [], 0)


async def page(
    world: World, platform: OrganizationId, *, before: tuple[datetime, UUID] | None, limit: int
) -> list[Found]:
    """Reconciliations, newest first."""
    async with world.db.reading(platform) as connection:
        asked = await reconciliations.page(connection, before=before, limit=limit)
        batches = await reconciliation_batches.batches(connection, [one.id for one in asked])
        by_id = {key: list(some) for key, some in groupby(batches, lambda batch: batch.reconciliation_id)}
        return [
            _found(one, by_id.get(one.id, []), await reconciliation_batches.differing(connection, one.id))
            for one in asked
        ]


async def get(world: World, platform: OrganizationId, reconciliation_id: UUID) -> Found | Refused:
    async with world.db.reading(platform) as connection:
        asked = await reconciliations.get(connection, reconciliation_id)
        if asked is None:
            return _NONE
        batches = await reconciliation_batches.batches(connection, [reconciliation_id])
        return _found(asked, batches, await reconciliation_batches.differing(connection, reconciliation_id))


async def differences(
    world: World,
    platform: OrganizationId,
    reconciliation_id: UUID,
    *,
    after: tuple[UUID, str] | None,
    limit: int,
) -> list[NamedDifference] | Refused:
    """The customers' links that differ, by customer."""
    async with world.db.reading(platform) as connection:
        if await reconciliations.get(connection, reconciliation_id) is None:
            return _NONE
        found = await reconciliation_batches.differences(
            connection, reconciliation_id, after=after, limit=limit
        )
        names = await organizations.names(connection, {difference.customer_id for difference in found})
    return [NamedDifference(difference, names[difference.customer_id]) for difference in found]


async def customers(
    world: World,
    platform: OrganizationId,
    reconciliation_id: UUID,
    *,
    after: OrganizationId | None,
    limit: int,
) -> list[ReconciledCustomer] | Refused:
    """Both sides of every link of the customers that are stored, in the order of their ids behind `after`."""
    async with world.db.reading(platform) as connection:
        if await reconciliations.get(connection, reconciliation_id) is None:
            return _NONE
        found = await reconciliation_batches.examined(connection, reconciliation_id, after=after, limit=limit)
        names = await organizations.names(connection, [customer.customer_id for customer in found])
    return [
        ReconciledCustomer(
            customer.customer_id, names[customer.customer_id], sides(customer.amounts, OF_CUSTOMERS)
        )
        for customer in found
    ]


def _found(asked: Reconciliation, batches: Sequence[Batch], differing: int) -> Found:
    """What the batches of a reconciliation came to. `differing` counts its customers with a difference."""
    amounts = Amounts()
    for batch in batches:
        amounts = amounts.plus(batch.amounts)
    return Found(
        asked=asked,
        customers=sum(batch.customers for batch in batches),
        remaining=batches[-1].remaining if batches else None,
        links=sides(amounts),
        differing_customers=differing,
        not_invoiced=amounts.not_invoiced,
        examined_at=batches[-1].examined_at if batches else None,
    )
