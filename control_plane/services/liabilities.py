"""What costs money at providers and serves nobody: machines on record that no lease holds, orphans, and
what launches left beside their machines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from control_plane.db import children, fleet, orphans
from control_plane.db.children import ListedLeftover
from control_plane.db.fleet import FleetFilter, FleetMachine
from control_plane.db.orphans import ListedOrphan
from control_plane.domain.ids import OrganizationId
from control_plane.world import World

__all__ = [
    "FleetMachine",
    "ListedLeftover",
    "ListedOrphan",
]  # For views, which must not import the layer below.

LISTED_MAX = 10_000
"""As many machines, orphans and leftovers each are listed and summed."""


@dataclass(frozen=True, slots=True)
class Liabilities:
    machines: Sequence[FleetMachine]
    """Newest first."""
    orphans: Sequence[ListedOrphan]
    leftovers: Sequence[ListedLeftover]


async def every(world: World, platform: OrganizationId) -> Liabilities:
    """All of them, at this moment. `platform` is the operators' organization."""
    async with world.db.reading(platform) as connection:
        return Liabilities(
            await fleet.page(
                connection, FleetFilter(), after=None, limit=LISTED_MAX, now=world.now(), unused=True
            ),
            await orphans.page(connection, gone=False, after=None, limit=LISTED_MAX),
            await children.leftovers(connection, limit=LISTED_MAX),
        )
