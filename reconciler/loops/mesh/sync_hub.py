"""Keeps the hub's peers correct: removes the peers of ended claims, and restores peers that the hub has lost.

A machine that joins is sent to the hub at once (reconciler/network.py). This loop is the level-triggered part: it
deletes the peers of ended claims, and sends the hub the whole list of every network from time to time.
"""

from datetime import timedelta

from control_plane.db import mesh
from data_plane.access.port import AccessError
from data_plane.mesh.port import Network
from reconciler import network
from reconciler.loop import Loop, Report
from reconciler.worlds.mesh import MeshWorld

NAME = "sync_hub"
NETWORKS_PER_ACTIVATION_MAX = 100
REPEAT_AFTER = timedelta(minutes=5)


async def activate(world: MeshWorld) -> Report:
    async with world.db.transaction() as connection:
        changed = await mesh.drop_ended(connection)
        unsynced = await mesh.unsynced(
            connection, before=world.now() - REPEAT_AFTER, limit=NETWORKS_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(unsynced), acted_on=changed)
    for row in unsynced:
        try:
            await network.sync(world, row.organization_id, Network(row.number))
        except network.NetworkBusy:
            continue  # The replica that holds the network syncs it.
        except AccessError as error:
            report.errors.append(f"network {row.number}: {type(error).__name__}: {error}")
    return report


LOOP = Loop(NAME, timedelta(seconds=5), activate)
