"""Reading orphans: machines with our launch keys that no open record claims."""

from collections.abc import Sequence
from typing import Any

from control_plane.db import accounts
from control_plane.world import World


async def every(world: World) -> Sequence[dict[str, Any]]:
    """The orphans of all accounts, as the last lists showed them."""
    async with world.db.reading() as connection:
        return await accounts.strangers_shown(connection)
