"""Reading the reports of the reconciler's loops."""

from collections.abc import Sequence
from typing import Any

from control_plane.db import loops
from control_plane.world import World


async def reports(world: World) -> Sequence[dict[str, Any]]:
    """The last report of every loop, account and replica."""
    async with world.db.reading() as connection:
        return await loops.reports(connection)
