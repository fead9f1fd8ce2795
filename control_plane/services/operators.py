"""What an operator asks: what the loops did, which machines belong to nobody, how the accounts are."""

from collections.abc import Sequence
from typing import Any

from control_plane.db import accounts, loops
from control_plane.db.accounts import Account
from control_plane.world import World


async def loop_reports(world: World) -> Sequence[dict[str, Any]]:
    async with world.db.reading() as connection:
        return await loops.reports(connection)


async def orphans(world: World) -> Sequence[dict[str, Any]]:
    """Machines with our launch keys that no open record claims, as the last lists showed them."""
    async with world.db.reading() as connection:
        return await accounts.strangers_shown(connection)


async def provider_accounts(world: World) -> Sequence[Account]:
    async with world.db.reading() as connection:
        return await accounts.every(connection)
