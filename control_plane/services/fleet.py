"""What operators read of the fleet: every machine of all customers, counts of them, and what costs money for nobody."""

from collections.abc import Sequence

from control_plane.db import fleet
from control_plane.db.fleet import FleetCount, FleetFilter, FleetMachine
from control_plane.domain.ids import MachineId, OrganizationId
from control_plane.world import World

__all__ = [
    "FleetCount",
    "FleetFilter",
    "FleetMachine",
]  # For controllers, which must not import the layer below.


async def page(
    world: World,
    platform: OrganizationId,
    only: FleetFilter,
    *,
    after: MachineId | None,
    limit: int,
    unused: bool = False,
) -> Sequence[FleetMachine]:
    """Machines that may exist, newest first. `platform` is the operators' organization."""
    async with world.db.reading(platform) as connection:
        return await fleet.page(connection, only, after=after, limit=limit, now=world.now(), unused=unused)


async def totals(world: World, platform: OrganizationId, only: FleetFilter) -> Sequence[FleetCount]:
    """The machines that may exist, counted by provider and GPU model."""
    async with world.db.reading(platform) as connection:
        return await fleet.totals(connection, only, now=world.now())
