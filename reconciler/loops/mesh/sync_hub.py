"""Keeps the hub's peers correct: removes the peers of ended claims, and restores peers that the hub has lost.

A machine that joins is sent to the hub at once (reconciler/network.py). This loop is the level-triggered part: it
deletes the peers of ended claims, sends the hub the whole list of every network from time to time, and takes networks
off the hub that have been empty for a while, because the hub has a limited number of places.
"""

from collections.abc import Awaitable
from datetime import timedelta

from control_plane.db import mesh
from control_plane.db.mesh import HubNetwork
from control_plane.domain.network import range_of
from data_plane.access.port import AccessError
from data_plane.mesh.port import Network
from reconciler import network
from reconciler.loop import Loop, Report
from reconciler.worlds.mesh import MeshWorld

NAME = "sync_hub"
NETWORKS_PER_ACTIVATION_MAX = 100
REPEAT_AFTER = timedelta(minutes=5)
EMPTY_FOR = timedelta(hours=1)
"""So long an empty network keeps its place on the hub: customers often lease the next machine soon."""


async def activate(world: MeshWorld) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        changed = await mesh.drop_ended(connection, now=now)
        unsynced = await mesh.unsynced(
            connection, before=now - REPEAT_AFTER, limit=NETWORKS_PER_ACTIVATION_MAX
        )
        empty = await mesh.empty(connection, before=now - EMPTY_FOR, limit=NETWORKS_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(unsynced) + len(empty), acted_on=changed)
    gone = {row.network_id for row in empty}
    for row in empty:
        await _call(report, row, network.drop(world, row.network_id, _on_hub(row)))
    for row in unsynced:
        if row.network_id not in gone:
            await _call(report, row, network.sync(world, row.network_id, _on_hub(row)))
    return report


def _on_hub(row: HubNetwork) -> Network:
    return Network(row.number, range_of(row.block))


async def _call(report: Report, row: HubNetwork, call: Awaitable[object]) -> None:
    try:
        await call
    except network.NetworkBusy:
        pass  # The replica that holds the network updates it.
    except AccessError as error:
        report.errors.append(f"network {row.number}: {type(error).__name__}: {error}")


LOOP = Loop(NAME, timedelta(seconds=5), activate)
