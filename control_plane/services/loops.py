"""Reads the reports of the reconciler's loops."""

from collections.abc import Sequence

from control_plane.db import loops
from control_plane.db.loops import LoopReport, RosterLine
from control_plane.world import World

__all__ = ["LoopReport", "RosterLine"]  # For controllers, which must not import the layer below.


async def reports(world: World) -> tuple[Sequence[LoopReport], Sequence[RosterLine]]:
    """The last report of every loop, account and replica; and the loops and accounts that have none."""
    async with world.db.reading() as connection:
        return await loops.reports(connection), await loops.missing(connection)
