"""Keeps the hub's peers what they should be: machines that went leave it, and a hub that forgot learns again.

Joining machines make the hub know them at once (reconciler/network.py). This loop is the level trigger
behind that: it drops the peers of ended machines, and tells the hub of every network now and then.
"""

from datetime import timedelta

from control_plane.db import mesh
from data_plane.access.port import AccessError
from data_plane.mesh.port import Network
from reconciler import network
from reconciler.loop import Loop, Report, World

NAME = "sync_hub"
NETWORKS_PER_ACTIVATION_MAX = 100
REPEAT_AFTER = timedelta(minutes=5)


async def activate(world: World) -> Report:
    async with world.db.transaction() as connection:
        changed = await mesh.drop_ended(connection)
        unsynced = await mesh.unsynced(
            connection, before=world.now() - REPEAT_AFTER, limit=NETWORKS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(unsynced), acted_on=changed)
    for organization_id, number in unsynced:
        try:
            await network.sync(world, organization_id, Network(number))
        except network.NetworkBusy:
            continue  # Whoever holds it does the same.
        except AccessError as error:
            report.errors.append(f"network {number}: {type(error).__name__}: {error}")
    return report


LOOP = Loop(NAME, timedelta(seconds=5), activate)
