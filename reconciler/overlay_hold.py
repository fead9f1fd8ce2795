"""The hold of a worker on an overlay: only one worker at a time may set its members up.

A worker that stalls loses its hold, and may go on later with a peer map that has a removed key in it. So the hold is
renewed before each call to a machine, and a machine refuses the lower fence of a worker that stalled in the call.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import overlays
from control_plane.domain.ids import ClusterId
from data_plane.access.port import AccessError
from reconciler.worlds.clusters import ClusterWorld

HELD_FOR = timedelta(minutes=5)
"""Longer than any call to a machine takes."""
LOST = "another worker holds the overlay by now"


async def hold(world: ClusterWorld, cluster_id: ClusterId, token: UUID) -> None:
    """Hold the overlay for as long again. Raises AccessError when another worker holds it."""
    async with world.db.statement() as connection:
        is_held = await overlays.renew(connection, cluster_id, token=token, until=world.now() + HELD_FOR)
    if not is_held:
        raise AccessError(LOST)
