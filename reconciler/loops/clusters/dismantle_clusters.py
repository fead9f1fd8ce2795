"""Removes the servers of deleted clusters that have no node any more, and destroys their credentials.

Their hosts are free after that.
"""

from datetime import timedelta

from control_plane.db import clusters, overlays, server_hosts
from control_plane.db import secrets as secret_rows
from control_plane.domain.cluster import Cluster, ClusterEvent, ClusterState, step
from control_plane.domain.transitions import Moved
from data_plane.access.port import AccessError
from reconciler.loop import Loop, Report
from reconciler.server_hosts import LASTS, Turn, each_due, fail, target
from reconciler.worlds.clusters import ClusterWorld

NAME = "dismantle_clusters"


async def activate(world: ClusterWorld) -> Report:
    return await each_due(world, ClusterState.DELETING, _dismantle)


async def _dismantle(world: ClusterWorld, cluster: Cluster, turn: Turn, report: Report) -> None:
    async with world.db.reading() as connection:
        hosts = await server_hosts.of_cluster(connection, cluster.id)
    try:
        for host in hosts:
            await world.servers.dismantle(target(host), fence=turn.fence)
    except AccessError as error:
        await fail(world, cluster, error, turn.token, report)
        return
    async with world.db.transaction() as connection:
        moved = step(cluster.state, ClusterEvent.DISMANTLED)
        if not isinstance(moved, Moved) or not await clusters.is_held(
            connection, cluster.id, token=turn.token
        ):
            return
        kept = await clusters.secrets_of(connection, cluster.id)
        await clusters.forget_secrets(connection, cluster.id)
        for secret_id in (kept.token_secret_id, kept.admin_secret_id):
            if secret_id is not None:
                await secret_rows.delete(connection, secret_id)
        await server_hosts.free(connection, cluster.id)
        await overlays.delete(connection, cluster.id)
        report.count(int(await clusters.move(connection, cluster, moved, now=world.now())))


LOOP = Loop(NAME, timedelta(seconds=5), activate, lasts=LASTS)
