"""The hold of a worker on an overlay: only one worker at a time may set its members up.

The hold is short, and is renewed while the work lasts. So it outlives any slow call to a machine, but no process that
was killed or that stalls: another worker goes on seconds later. A worker that stalled may go on as well, with a peer
map that has a removed key in it. So it renews its hold before each call to a machine, and a machine refuses the lower
fence of a worker that stalled in the call (docs/decisions/0058).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from control_plane.db import overlays
from control_plane.domain.ids import ClusterId
from data_plane.access.port import AccessError
from reconciler.worlds.clusters import ClusterWorld

HELD_FOR = timedelta(seconds=20)
"""How long members wait when the process of their worker is gone."""
RENEWED_EVERY = timedelta(seconds=5)
LOST = "another worker holds the overlay by now"


async def hold(world: ClusterWorld, cluster_id: ClusterId, token: UUID) -> None:
    """Hold the overlay for as long again. Raises AccessError when another worker holds it."""
    if not await _renewed(world, cluster_id, token):
        raise AccessError(LOST)


@asynccontextmanager
async def kept(world: ClusterWorld, cluster_id: ClusterId, token: UUID) -> AsyncIterator[None]:
    """Renew the hold again and again until the block ends. Whether it was lost is for `hold` to find."""
    keeper = asyncio.create_task(_keep(world, cluster_id, token), name="keep overlay")
    try:
        yield
    finally:
        keeper.cancel()
        await asyncio.wait([keeper])


async def _keep(world: ClusterWorld, cluster_id: ClusterId, token: UUID) -> None:
    is_held = True
    while is_held:
        await world.sleep(RENEWED_EVERY.total_seconds())
        try:
            is_held = await _renewed(world, cluster_id, token)
        except Exception:  # noqa: BLE001 - the database is away, and the hold lasts for several tries
            is_held = True


async def _renewed(world: ClusterWorld, cluster_id: ClusterId, token: UUID) -> bool:
    async with world.db.statement() as connection:
        return await overlays.renew(connection, cluster_id, token=token, until=world.now() + HELD_FOR)
