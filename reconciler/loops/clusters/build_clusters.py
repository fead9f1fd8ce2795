"""Installs the servers of new clusters, after which the clusters are READY.

The credential with which servers join is stored, sealed, before a host gets it, so that a crash anywhere leaves one
that the next activation uses again. A cluster whose server cannot be installed waits, with the reason for operators.
One to whose host the files of K3s are still being sent has not failed: the next activation sends the rest.
One that is deleted meanwhile is dismantled after the installation.
"""

import secrets
from datetime import timedelta
from uuid import UUID

from control_plane.db import clusters, server_hosts
from control_plane.db import secrets as secret_rows
from control_plane.db.clusters import Built
from control_plane.domain.cluster import Cluster, ClusterEvent, ClusterState, server_name, step
from control_plane.domain.overlay import PODS, SERVER_NUMBER, SERVICES, address_of, range_of
from control_plane.domain.transitions import Moved
from control_plane.vault.errors import KeyManagerError
from data_plane.access.port import AccessError
from data_plane.cluster.files import StillSending
from data_plane.cluster.servers import ServerIdentity, ServerOrder
from data_plane.mesh.port import OverlayPlace
from reconciler import cluster_secrets
from reconciler.loop import Loop, Report
from reconciler.server_hosts import LASTS, Turn, each_due, fail, target
from reconciler.worlds.clusters import ClusterWorld

NAME = "build_clusters"


async def activate(world: ClusterWorld) -> Report:
    return await each_due(world, ClusterState.BUILDING, _build)


async def _build(world: ClusterWorld, cluster: Cluster, turn: Turn, report: Report) -> None:
    token = turn.token
    async with world.db.reading() as connection:
        (host,) = await server_hosts.of_cluster(connection, cluster.id)
    try:
        credential = await _credential(world, cluster, token)
        if credential is None:
            return
        place = OverlayPlace(
            address_of(cluster.overlay, SERVER_NUMBER), str(range_of(cluster.overlay)), str(PODS)
        )
        order = ServerOrder(
            target(host),
            host.outside,
            place,
            server_name(cluster.id),
            str(SERVICES),
            credential,
            turn.fence,
        )
        identity = await world.servers.install(order)
        await _record(world, cluster, identity, token, report)
    except StillSending as sent:
        report.notes.append(f"{cluster.name}: {sent}")
        async with world.db.statement() as connection:
            await clusters.give_back(connection, cluster.id, token=token)
    except (AccessError, KeyManagerError) as error:
        await fail(world, cluster, error, token, report)


async def _credential(world: ClusterWorld, cluster: Cluster, token: UUID) -> str | None:
    """The credential with which servers join, made at the first try; None when another worker holds the cluster."""
    async with world.db.reading() as connection:
        stored = (await clusters.secrets_of(connection, cluster.id)).token_secret_id
    if stored is not None:
        return await cluster_secrets.opened(world, stored)
    made = secrets.token_hex(32)
    sealed = await cluster_secrets.sealed(world, made)
    if sealed is None:
        return made
    async with world.db.transaction() as connection:
        await secret_rows.insert(connection, sealed, now=world.now())
        kept = await clusters.keep_token(connection, cluster.id, sealed.id, token=token)
        if not kept:
            await secret_rows.delete(connection, sealed.id)
    return made if kept else None


async def _record(
    world: ClusterWorld, cluster: Cluster, identity: ServerIdentity, token: UUID, report: Report
) -> None:
    sealed = await cluster_secrets.sealed(world, identity.admin_kubeconfig)
    told = Built(identity.version, identity.endpoint, identity.ca_pem)
    async with world.db.transaction() as connection:
        moved = step(cluster.state, ClusterEvent.BUILT)
        if not isinstance(moved, Moved) or not await clusters.is_held(connection, cluster.id, token=token):
            return  # Another worker builds it.
        now = world.now()
        if sealed is not None:
            await secret_rows.insert(connection, sealed, now=now)
        await clusters.keep_told(connection, cluster.id, told, None if sealed is None else sealed.id)
        is_built = await clusters.move(connection, cluster, moved, now=now)
        if not is_built:  # It was deleted meanwhile, and waits to be dismantled.
            await clusters.give_back(connection, cluster.id, token=token)
        report.count(int(is_built))


LOOP = Loop(NAME, timedelta(seconds=2), activate, lasts=LASTS)
