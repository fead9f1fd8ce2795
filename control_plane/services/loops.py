"""Reads the reports of the reconciler's loops."""

from collections.abc import Sequence

from control_plane.db import loops
from control_plane.db.loops import LoopReport
from control_plane.world import World

__all__ = ["LoopReport"]  # For controllers, which must not import the layer below.


async def reports(world: World) -> Sequence[LoopReport]:
    """The last report of every loop, account and replica."""
    async with world.db.reading() as connection:
        return await loops.reports(connection)
