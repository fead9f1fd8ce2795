"""Reads orphans: machines with launch keys of ours that no open record matches."""

from collections.abc import Sequence

from control_plane.db import accounts
from control_plane.db.accounts import ListedOrphan
from control_plane.world import World

__all__ = ["ListedOrphan"]  # For controllers, which must not import the layer below.


async def every(world: World) -> Sequence[ListedOrphan]:
    """The orphans of all accounts, as the last lists showed them."""
    async with world.db.reading() as connection:
        return await accounts.orphans_shown(connection)
