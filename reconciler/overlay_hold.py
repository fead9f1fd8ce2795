"""The hold of a worker on an overlay: only one worker at a time may set its members up.

A worker that stalls loses its hold, and may go on later with a peer map that has a removed key in it. So the hold is
renewed before each call to a machine, and a machine refuses the lower fence of a worker that stalled in the call.
"""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from uuid import UUID

from control_plane.db import overlays
from control_plane.domain.ids import ClusterId
from data_plane.access.port import AccessError
from reconciler.renewal import renewed
from reconciler.worlds.clusters import ClusterWorld

HELD_FOR = timedelta(seconds=20)
"""How long members wait when the process of their worker is gone."""
LOST = "another worker holds the overlay by now"


async def hold(world: ClusterWorld, cluster_id: ClusterId, token: UUID) -> None:
    """Hold the overlay for as long again. Raises AccessError when another worker holds it."""
    if not await _renew(world, cluster_id, token):
        raise AccessError(LOST)


def kept(world: ClusterWorld, cluster_id: ClusterId, token: UUID) -> AbstractAsyncContextManager[None]:
    """Hold the overlay until the block ends. Whether it was lost meanwhile is for `hold` to find."""
    return renewed(lambda: _renew(world, cluster_id, token), world.sleep)


async def _renew(world: ClusterWorld, cluster_id: ClusterId, token: UUID) -> bool:
    async with world.db.statement() as connection:
        return await overlays.renew(connection, cluster_id, token=token, until=world.now() + HELD_FOR)
