"""What a customer owes and why: charges, their sums, and the bill of a month."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from control_plane.db import balance_alerts, charge_sums, ledger, organizations, sla, usage
from control_plane.db.connection import Connection
from control_plane.db.sla import BilledCredit
from control_plane.db.usage import Charge
from control_plane.domain import metering
from control_plane.domain.access import EVERYWHERE, Reach
from control_plane.domain.ids import LeaseId, OrganizationId, ProjectId
from control_plane.domain.ledger import AccountKind
from control_plane.domain.money import NOTHING, Nano, accrued
from control_plane.domain.period import month_after, month_of
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import Unit, unit_of
from control_plane.domain.sla import SlaTier
from control_plane.domain.tariff import billing_end
from control_plane.domain.usage_grouping import UsageGroup, UsageGrouping
from control_plane.world import World

__all__ = [
    "Bill",
    "BillLine",
    "BilledCredit",
    "Charge",
    "CustomerUsage",
    "ProjectTotal",
    "Reconciliation",
    "UsageGroup",
    "UsagePage",
    "UsageSums",
]  # Controllers name these, and do not import the layer below.

CHARGES_PER_PAGE, GROUPS_PER_PAGE = 1_000_000, 10_000
"""No further customer is added to a page of usage that has so many: it would take longer than clients wait, or more
memory than an answer should."""


@dataclass(frozen=True, slots=True)
class BillLine:
    lease_id: LeaseId
    name: str
    project_id: ProjectId
    project: str
    """The project's name."""
    sku: str
    sla: SlaTier
    node_pool: str | None
    """The name of the node pool that the lease is a node of."""
    unit: Unit
    """What the price is for, and what the seconds are of."""
    stopped: bool
    """Whether it is the time in which the machine was stopped, which has a line and a price of its own."""
    unused: bool
    """Whether it is what its customer did not use of a term, which has a line of its own."""
    nano_per_unit_hour: Nano
    unit_seconds: int
    """Rated in this period."""
    amount_nano: Nano
    """Rated in this period, and posted."""
    unrated_unit_seconds: int
    """Certainly used, and not yet rated."""
    unrated_nano: Nano


@dataclass(frozen=True, slots=True)
class ProjectTotal:
    """The lines of a bill that belong to one project."""

    project: str
    project_id: ProjectId
    lines: tuple[BillLine, ...]

    def seconds(self, unit: Unit) -> int:
        """Rated seconds of this unit that were used."""
        return sum(line.unit_seconds for line in self.lines if line.unit is unit and not line.unused)

    def unrated_seconds(self, unit: Unit) -> int:
        used = (line for line in self.lines if line.unit is unit and not line.unused)
        return sum(line.unrated_unit_seconds for line in used)


@dataclass(frozen=True, slots=True)
class Bill:
    since: datetime
    until: datetime
    lines: tuple[BillLine, ...]
    posted_nano: Nano | None
    """The balance: everything paid in, less all posted charges. None when only a part of the organization is seen."""
    held_nano: Nano | None
    available_nano: Nano | None
    """What can be set aside for more leases, with credit."""
    balance_warning: str | None = None
    """What the customer was told when the balance fell low; None while it is not, and where the balance is not seen."""
    sla_credits: tuple[BilledCredit, ...] = ()
    """What the balance got for promises that were broken in the month."""

    @property
    def by_project(self) -> tuple[ProjectTotal, ...]:
        """The sums of each project that has a line, in order of name."""
        found: dict[tuple[str, ProjectId], list[BillLine]] = {}
        for line in self.lines:
            found.setdefault((line.project, line.project_id), []).append(line)
        return tuple(ProjectTotal(*project, tuple(found[project])) for project in sorted(found))

    @property
    def amount_nano(self) -> Nano:
        return Nano(sum(line.amount_nano for line in self.lines))

    @property
    def unrated_nano(self) -> Nano:
        return Nano(sum(line.unrated_nano for line in self.lines))


async def bill(
    world: World,
    organization_id: OrganizationId,
    *,
    month: datetime | None = None,
    project_id: ProjectId | None = None,
    reach: Reach,
) -> Bill:
    """The bill of a month, given by its first instant, or of the current one: every rated charge of time in it, and
    what leases have certainly used in it since.

    With `project_id`, only the lines of the project. The balance is the organization's as it is now either way; it is
    left out for a reach that is less than the organization.
    """
    now = world.now()
    since = month or month_of(now)
    until = month_after(since)
    async with world.db.reading(organization_id) as connection:
        found = await usage.by_lease(
            connection, organization_id, reach, since=since, until=until, project_id=project_id
        )
        credits_of_month = await sla.billed(
            connection, organization_id, reach, month=since, project_id=project_id
        )
        organization = await organizations.get(connection, organization_id)
        standing = (
            await organizations.standing(connection, organization_id, lock=False)
            if reach.organization
            else None
        )
        noticed = await balance_alerts.state(connection, organization_id) if reach.organization else None
    if organization is None:
        raise LookupError(f"organization {organization_id} does not exist")
    return Bill(
        since=since,
        until=until,
        lines=tuple(
            line
            for lease in found
            for line in bill_lines(lease, now, since=since, until=until)
            # A lease that has only just begun is on the bill of the current month.
            if line.unit_seconds or line.unrated_unit_seconds or since <= now < until
        ),
        posted_nano=organization.posted_nano if reach.organization else None,
        held_nano=organization.held_nano if reach.organization else None,
        available_nano=None if standing is None else standing.available_nano,
        balance_warning=None if noticed is None else noticed.why,
        sla_credits=tuple(credits_of_month),
    )


def bill_lines(
    lease: usage.LeaseUsage, now: datetime, *, since: datetime, until: datetime
) -> tuple[BillLine, ...]:
    """A lease's lines on the bill of a period: one of the time on, and one each of the time stopped and of the rest of
    a term if there is any.
    """
    on, stopped = (_line(lease, now, since, until, stopped=stopped) for stopped in (False, True))
    more = (stopped, _rest(lease, on, since, until))
    return (on, *(line for line in more if line.unit_seconds or line.unrated_unit_seconds))


def _rest(lease: usage.LeaseUsage, on: BillLine, since: datetime, until: datetime) -> BillLine:
    """What is billed of a term that its customer did not use, in the period in which the bill stopped."""
    stop, unrated = lease.billed_until, 0
    if stop is not None and since <= billing_end(lease.ready_at, stop) < until:
        unrated = max(0, lease.unused_unit_seconds - lease.rest_unit_seconds)
    return replace(
        on,
        unused=True,
        unit_seconds=lease.rest_unit_seconds,
        amount_nano=lease.rest_amount_nano,
        unrated_unit_seconds=unrated,
        unrated_nano=NOTHING if stop is None or not unrated else lease.unused_cost(stop, unrated),
    )


def _line(
    lease: usage.LeaseUsage, now: datetime, since: datetime, until: datetime, *, stopped: bool
) -> BillLine:
    """What was rated, and what has certainly been used since, within the period."""
    # Time that is metered already counts through its charges; only the time since the last interval is unrated.
    metered_until = lease.metered_until or lease.ready_at
    used = metering.used_until(lease, now)
    begin, end = max(metered_until, since), min(used.certain, until)
    before, through = (lease.unit_seconds_until(at, stopped=stopped) for at in (begin, end))
    price = lease.price(stopped=stopped)
    return BillLine(
        lease_id=lease.id,
        name=lease.name,
        project_id=lease.project_id,
        project=lease.project,
        sku=lease.sku,
        sla=lease.sla,
        node_pool=lease.node_pool,
        unit=unit_of(lease.gpu_count),
        stopped=stopped,
        unused=False,
        nano_per_unit_hour=price,
        unit_seconds=lease.stopped_unit_seconds if stopped else lease.unit_seconds,
        amount_nano=lease.stopped_amount_nano if stopped else lease.amount_nano,
        unrated_unit_seconds=max(0, through - before),
        unrated_nano=Nano(max(0, accrued(price, through) - accrued(price, before))),
    )


async def usage_page(
    world: World,
    organization_id: OrganizationId,
    *,
    since: datetime,
    until: datetime,
    project_id: ProjectId | None = None,
    reach: Reach,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Charge]:
    """Charges of a period, in order of their start; with `project_id`, only those of the project."""
    async with world.db.reading(organization_id) as connection:
        return await usage.charges(
            connection,
            organization_id,
            reach,
            since=since,
            until=until,
            project_id=project_id,
            after=after,
            limit=limit,
        )


@dataclass(frozen=True, slots=True)
class UsageSums:
    """The charges of a month, added up by something that they have in common."""

    by: UsageGrouping
    label: str | None
    """The key to group by."""
    since: datetime
    until: datetime
    groups: Sequence[UsageGroup]

    @property
    def charges(self) -> int:
        return sum(group.charges for group in self.groups)

    @property
    def gpu_seconds(self) -> int:
        return sum(group.gpu_seconds for group in self.groups)

    @property
    def machine_seconds(self) -> int:
        return sum(group.machine_seconds for group in self.groups)

    @property
    def amount_nano(self) -> Nano:
        return Nano(sum(group.amount_nano for group in self.groups))

    @property
    def unused_nano(self) -> Nano:
        return Nano(sum(group.unused_nano for group in self.groups))


async def usage_sums(
    world: World,
    organization_id: OrganizationId,
    *,
    by: UsageGrouping,
    label: str | None = None,
    month: datetime | None = None,
    project_id: ProjectId | None = None,
    reach: Reach,
) -> UsageSums:
    """The charges of a month, given by its first instant, or of the current one, added up in groups.

    `label` is the key to group by where `by` says so. With `project_id`, only the charges of the project.
    """
    since = month or month_of(world.now())
    async with world.db.reading(organization_id) as connection:
        return await _sums(
            connection, organization_id, reach, by=by, label=label, since=since, project_id=project_id
        )


async def _sums(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    by: UsageGrouping,
    label: str | None,
    since: datetime,
    project_id: ProjectId | None = None,
) -> UsageSums:
    until = month_after(since)
    found = await charge_sums.groups(
        connection,
        organization_id,
        reach,
        by=by,
        label=label,
        since=since,
        until=until,
        project_id=project_id,
    )
    return UsageSums(by, label, since, until, found)


@dataclass(frozen=True, slots=True)
class CustomerUsage:
    """A customer with what it used in a month."""

    organization_id: OrganizationId
    organization: str
    """Its name."""
    created_at: datetime
    """When the organization was created."""
    usage: UsageSums


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Customers with what they used, and whether there are more behind them."""

    customers: Sequence[CustomerUsage]
    more: bool


async def usage_of_all(
    world: World,
    platform: OrganizationId,
    *,
    by: UsageGrouping,
    label: str | None,
    month: datetime | None,
    only: OrganizationId | None,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> UsagePage | Refused:
    """What each customer used in a month, oldest customer first behind `after`, or `only` one of them.

    Each is read as its own tenant. There are at most `limit`, and fewer where they have many charges or groups.
    """
    since = month or month_of(world.now())
    if only is None:
        async with world.db.reading(platform) as connection:
            ids = await organizations.ids(connection, after=after, states=None, part=None, limit=limit + 1)
    else:
        ids = [only]
    found: list[CustomerUsage] = []
    charges = groups = 0
    for organization_id in ids[:limit]:
        async with world.db.reading(organization_id) as connection:
            organization = await organizations.get(connection, organization_id)
            if organization is None:
                continue
            sums = await _sums(connection, organization_id, EVERYWHERE, by=by, label=label, since=since)
        found.append(CustomerUsage(organization_id, organization.name, organization.created_at, sums))
        charges += sums.charges
        groups += len(sums.groups)
        if charges >= CHARGES_PER_PAGE or groups >= GROUPS_PER_PAGE:
            break
    if only is not None and not found:
        return Refused(RefusalCode.NOT_FOUND, "There is no organization with this id.")
    return UsagePage(found, more=bool(found) and found[-1].organization_id != ids[-1])


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Totals that have to agree: nano-USD rated in charges, posted as revenue, and the balance of the wallet."""

    gpu_seconds: int
    machine_seconds: int
    """Of machines without GPUs."""
    rated_nano: Nano
    posted_nano: Nano
    balance_nano: Nano
    """The wallet's balance by its postings; the standing's cached figure must equal it."""

    @property
    def difference_nano(self) -> Nano:
        return Nano(self.rated_nano - self.posted_nano)


async def reconcile(world: World, organization_id: OrganizationId) -> Reconciliation:
    """Sum an organization's charges and its postings independently."""
    always = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
    async with world.db.reading(organization_id) as connection:
        rated = await charge_sums.total(connection, organization_id, since=always[0], until=always[1])
        posted = await ledger.totals(connection, organization_id)
    return Reconciliation(
        gpu_seconds=rated.gpu_seconds,
        machine_seconds=rated.machine_seconds,
        rated_nano=rated.amount_nano,
        posted_nano=posted.get(AccountKind.REVENUE, Nano(0)),
        balance_nano=posted.get(AccountKind.WALLET, Nano(0)),
    )
