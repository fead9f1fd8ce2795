"""What a customer owes and why: top-ups, usage rows, the bill of the running period."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import ledger, organizations, usage
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import AccountKind, top_up
from control_plane.domain.metering import gpu_seconds_total
from control_plane.domain.money import Nano, accrued
from control_plane.world import World


def period_of(now: datetime) -> tuple[datetime, datetime]:
    """The calendar month (UTC) that `now` lies in: first instant, and first instant after it."""
    start = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = divmod(start.year * 12 + start.month, 12)
    return start, start.replace(year=year, month=month + 1)


async def credit(
    connection: AsyncConnection, world: World, organization_id: OrganizationId, amount: Nano, *, key: str
) -> bool:
    """Post a top-up once per key. False when the key was posted before."""
    transaction = top_up(organization_id, amount, key=key)
    return await ledger.post(connection, transaction, transaction_id=world.new_id(), now=world.now())


@dataclass(frozen=True, slots=True)
class BillLine:
    lease_id: UUID
    name: str
    sku: str
    nano_per_gpu_hour: Nano
    gpu_seconds: int
    """Rated in this period."""
    amount_nano: Nano
    """Rated in this period, and posted."""
    unrated_gpu_seconds: int
    """Used since, not yet rated."""
    unrated_nano: Nano


@dataclass(frozen=True, slots=True)
class Bill:
    since: datetime
    until: datetime
    lines: tuple[BillLine, ...]
    posted_nano: Nano
    """Balance: what was paid in less what was posted, ever."""
    held_nano: Nano

    @property
    def amount_nano(self) -> Nano:
        return Nano(sum(line.amount_nano for line in self.lines))

    @property
    def unrated_nano(self) -> Nano:
        return Nano(sum(line.unrated_nano for line in self.lines))


async def bill(world: World, organization_id: OrganizationId) -> Bill:
    """The running period: every rated charge, and what running leases used since."""
    now = world.now()
    since, until = period_of(now)
    async with world.db.reading(organization_id) as connection:
        found = await usage.by_lease(connection, organization_id, since=since, until=until)
        organization = await organizations.get(connection, organization_id)
    if organization is None:
        raise LookupError(f"organization {organization_id} does not exist")
    return Bill(
        since=since,
        until=until,
        lines=tuple(_line(row, now) for row in found),
        posted_nano=organization.posted_nano,
        held_nano=organization.held_nano,
    )


def _line(row: Any, now: datetime) -> BillLine:
    price = Nano(row.nano_per_gpu_hour)
    # What was metered before this period is history; what runs since the last interval is not rated yet.
    metered_until = row.metered_until or row.ready_at
    before = gpu_seconds_total(row.ready_at, row.gpu_count, metered_until)
    # As the meter: it waits while a failed GPU proof stands.
    through = gpu_seconds_total(
        row.ready_at, row.gpu_count, row.billed_until or min(now, row.suspect_since or now)
    )
    return BillLine(
        lease_id=row.id,
        name=row.name,
        sku=row.sku,
        nano_per_gpu_hour=price,
        gpu_seconds=row.gpu_seconds,
        amount_nano=Nano(row.amount_nano),
        unrated_gpu_seconds=max(0, through - before),
        unrated_nano=Nano(max(0, accrued(price, through) - accrued(price, before))),
    )


async def usage_page(
    world: World,
    organization_id: OrganizationId,
    *,
    since: datetime,
    until: datetime,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Any]:
    """Rated usage rows of a period, in order of their start."""
    async with world.db.reading(organization_id) as connection:
        return await usage.charges(
            connection, organization_id, since=since, until=until, after=after, limit=limit
        )


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The three totals that have to be one: nano-USD rated in charges, used from the wallet, booked as revenue."""

    gpu_seconds: int
    rated_nano: Nano
    posted_nano: Nano
    balance_nano: Nano
    """Wallet by its postings; the standing's cached figure must equal it."""

    @property
    def difference_nano(self) -> Nano:
        return Nano(self.rated_nano - self.posted_nano)


async def reconcile(world: World, organization_id: OrganizationId) -> Reconciliation:
    """Add up an organization's charges and its postings, independently."""
    always = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
    async with world.db.reading(organization_id) as connection:
        rated = await usage.total(connection, organization_id, since=always[0], until=always[1])
        posted = await ledger.totals(connection, organization_id)
    return Reconciliation(
        gpu_seconds=rated.gpu_seconds,
        rated_nano=Nano(rated.amount_nano),
        posted_nano=posted.get(AccountKind.REVENUE, Nano(0)),
        balance_nano=posted.get(AccountKind.WALLET, Nano(0)),
    )
