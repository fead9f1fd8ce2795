"""What customers and operators read of the machines of leases: metrics, health, and what Prometheus scrapes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.db import lease_health, samples
from control_plane.db.lease_health import Alert, GroupedBy, HealthGroup, MachineHealth
from control_plane.db.samples import NamedSample, StoredSample
from control_plane.domain.access import Reach
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.refusal import Refused
from control_plane.domain.telemetry import FRESH_FOR, POINTS_MAX, WINDOW_MAX, step
from control_plane.services import lease_reach
from control_plane.world import World

__all__ = ["Alert", "GroupedBy", "HealthGroup", "MachineHealth", "NamedSample", "StoredSample"]

MACHINES_MAX = 1_000
"""In one answer to Prometheus."""
_MACHINES_OF_LEASE_MAX = 4
"""A lease has one machine, and for a moment another one while it is replaced."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The last sample of a lease's machine, and a window of them."""

    lease_id: LeaseId
    latest: StoredSample | None
    since: datetime
    until: datetime
    step: timedelta
    points: Sequence[StoredSample]
    """The last sample of each step, oldest first."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """What Prometheus is answered."""

    samples: Sequence[NamedSample]
    """The last one of each machine that sent one in the last two hours."""
    fresh_from: datetime
    """An older sample does not say how its machine is now."""
    left_out: bool
    """There are more machines than are shown at once."""


async def metrics(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, window: timedelta, reach: Reach
) -> Metrics | Refused:
    now = world.now()
    apart = step(window)
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        latest = await samples.latest_of_leases(connection, [lease_id])
        points = await samples.points(
            connection,
            lease_id,
            now - window,
            step=apart,
            limit=_MACHINES_OF_LEASE_MAX * (POINTS_MAX + 1),
        )
    return Metrics(
        lease_id=lease_id,
        latest=max(latest, key=lambda sample: sample.at, default=None),
        since=now - window,
        until=now,
        step=apart,
        points=points,
    )


async def health(
    world: World, organization_id: OrganizationId, lease_id: LeaseId, *, reach: Reach
) -> Sequence[MachineHealth] | Refused:
    """How the machines are that the lease has now."""
    async with world.db.reading(organization_id) as connection:
        lease = await lease_reach.overview(connection, organization_id, lease_id, reach=reach)
        if isinstance(lease, Refused):
            return lease
        return await lease_health.of_lease(connection, lease_id)


async def groups(
    world: World, organization_id: OrganizationId, *, by: GroupedBy, reach: Reach
) -> Sequence[HealthGroup]:
    async with world.db.reading(organization_id) as connection:
        return await lease_health.groups(connection, organization_id, reach, by=by, now=world.now())


async def scrape(world: World, organization_id: OrganizationId, *, reach: Reach) -> Scraped:
    """The last samples of an organization's machines."""
    now = world.now()
    async with world.db.reading(organization_id) as connection:
        found = await samples.latest_named(
            connection, reach, since=now - WINDOW_MAX, after=None, limit=MACHINES_MAX + 1
        )
    return Scraped(found[:MACHINES_MAX], now - FRESH_FOR, len(found) > MACHINES_MAX)


async def scrape_all(world: World, organization_id: OrganizationId) -> Scraped:
    """The last samples of everybody's machines, for operators; `organization_id` is the platform's."""
    now = world.now()
    async with world.db.reading(organization_id) as connection:
        found = await samples.latest_named_of_all(
            connection, since=now - WINDOW_MAX, after=None, limit=MACHINES_MAX + 1
        )
    return Scraped(found[:MACHINES_MAX], now - FRESH_FOR, len(found) > MACHINES_MAX)
