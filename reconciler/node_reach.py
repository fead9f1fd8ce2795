"""Whether the server of a cluster and we ourselves reach nodes that say nothing (`domain/node_watch.py`)."""

import asyncio
from collections.abc import Mapping, Sequence

from control_plane.db import server_hosts
from control_plane.db.nodes import OpenNode
from control_plane.domain.cluster import Cluster
from control_plane.domain.ids import NodeId
from control_plane.domain.node_watch import Reach
from data_plane.access.port import AccessError, NotCertified, Target, Unreachable
from reconciler.server_hosts import target
from reconciler.worlds.clusters import ClusterWorld


async def reached(world: ClusterWorld, cluster: Cluster, found: Sequence[OpenNode]) -> Mapping[NodeId, Reach]:
    """How these nodes of a cluster are reached. Empty when the host of its server does not answer us.

    Raises NotCertified: without a certificate, nobody was asked.
    """
    async with world.db.reading() as connection:
        (host,) = await server_hosts.of_cluster(connection, cluster.id)
    try:
        interface = await world.members.read(target(host))
    except NotCertified:
        raise
    except AccessError:
        return {}
    heard = {tunnel.public_key for tunnel in interface.tunnels if not tunnel.silent}
    answers = await asyncio.gather(*(_answers(world, node) for node in found))
    return {
        node.id: Reach(heard=node.public_key in heard, answers=does)
        for node, does in zip(found, answers, strict=True)
    }


async def _answers(world: ClusterWorld, node: OpenNode) -> bool:
    """Whether its machine answers us by SSH, whatever it says then."""
    if node.address is None or node.host_key is None:
        return False
    try:
        await world.members.read(Target(node.address, node.ssh_port, node.host_key, node.launch_key))
    except Unreachable:
        return False
    except NotCertified:
        raise
    except AccessError:
        return True
    return True
