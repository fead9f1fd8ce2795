"""What the loops of nodes share: how a node's machine and its cluster are reached, and what a failed try leads to."""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from control_plane.db import clusters, nodes
from control_plane.db.nodes import Place
from control_plane.domain.backoff import delay
from control_plane.domain.cluster import Cluster
from control_plane.domain.ids import NodeId, Prefix, on_wire
from control_plane.domain.node import JOIN_MAX, JoinStep, LeaveStep, Node
from control_plane.domain.overlay import SERVER_NUMBER, address_of
from control_plane.vault.errors import KeyManagerError
from data_plane.access.port import NotCertified, Target
from data_plane.cluster.node import Marks
from data_plane.cluster.port import ClusterError
from reconciler.cluster_tenants import tenant_of
from reconciler.renewal import renewed
from reconciler.worlds.clusters import ClusterWorld

OURS = (ClusterError, KeyManagerError, NotCertified)
"""Failures of our own: no machine is to blame."""
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=2), timedelta(seconds=30)
HELD_FOR = timedelta(minutes=1)
"""How long a node waits when the process of its worker is gone."""
LASTS = timedelta(minutes=12)
"""Of an activation: the longest step sends K3s to a machine."""


@dataclass(frozen=True, slots=True)
class Held:
    """A node that this worker holds, with what it needs to know."""

    node: Node
    place: Place
    cluster: Cluster
    token: UUID

    @property
    def marks(self) -> Marks:
        node, place = self.node, self.place
        tenant = tenant_of(node.organization_id, node.project_id)
        lease = on_wire(Prefix.LEASE, node.lease_id)
        taints = tuple(place.node_taints)
        has_gpus = place.gpu_count > 0
        return Marks(tenant, lease, place.pool, place.node_labels, taints, has_gpus=has_gpus)

    @property
    def machine(self) -> Target:
        """How we log in to its machine. Raises ValueError for one without an address, which was never verified."""
        place = self.place
        if place.address is None or place.host_key is None:
            raise ValueError(f"{self.node.machine_id} has no address or no host key")
        return Target(place.address, place.ssh_port, place.host_key, place.launch_key)

    @property
    def address(self) -> str:
        return address_of(self.cluster.overlay, self.node.number)

    @property
    def server_address(self) -> str:
        return address_of(self.cluster.overlay, SERVER_NUMBER)

    @property
    def token_id(self) -> str:
        """Of its bootstrap token: it follows from the node, so that no crash leaves one that nobody can name."""
        digest = int(hashlib.sha256(self.node.id.bytes).hexdigest(), 16)
        return "".join("abcdefghijklmnopqrstuvwxyz0123456789"[digest // 36**place % 36] for place in range(6))


async def loaded(world: ClusterWorld, node: Node, token: UUID) -> Held:
    async with world.db.reading() as connection:
        place = await nodes.place(connection, node.id)
        cluster = await clusters.get(connection, node.cluster_id)
    if cluster is None:
        raise LookupError(f"{node.name} is in no cluster")
    return Held(node, place, cluster, token)


def kept(world: ClusterWorld, held: Sequence[NodeId], token: UUID) -> AbstractAsyncContextManager[None]:
    """Hold nodes until the block ends, however long their steps take. Those that were given back stay free."""
    return renewed(lambda: _renew(world, held, token), world.sleep)


async def hold(world: ClusterWorld, held: Held) -> bool:
    """Hold a node for as long again, before a step; False when another worker holds it by now."""
    return await _renew(world, [held.node.id], held.token)


async def _renew(world: ClusterWorld, ids: Sequence[NodeId], token: UUID) -> bool:
    async with world.db.statement() as connection:
        return await nodes.renew(connection, ids, token=token, until=world.now() + HELD_FOR)


async def take_step(world: ClusterWorld, held: Held, taken: JoinStep | LeaveStep, evidence: object) -> bool:
    """Store a step; False when another worker holds the node by now."""
    async with world.db.transaction() as connection:
        now = world.now()
        return await nodes.take_step(
            connection,
            held.node.id,
            taken,
            evidence,
            token=held.token,
            now=now,
            until=now + HELD_FOR,
            # The time that sending took is not the machine's.
            deadline_at=now + JOIN_MAX if taken is JoinStep.PREPARED else None,
        )


async def wait(
    world: ClusterWorld,
    held: Held,
    after: timedelta,
    why: str | None = None,
    *,
    longer: timedelta | None = None,
) -> None:
    """Give the node back without a failed try. `longer`: it has at least so much time left, from now."""
    now = world.now()
    async with world.db.statement() as connection:
        await nodes.wait(
            connection,
            held.node.id,
            token=held.token,
            due_at=now + after,
            why=why,
            deadline_at=None if longer is None else now + longer,
        )


async def fail(world: ClusterWorld, held: Held, error: Exception) -> None:
    """Give the node back after a failed try."""
    now = world.now()
    due_at = now + delay(held.node.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
    async with world.db.statement() as connection:
        why = f"{type(error).__name__}: {error}"
        await nodes.fail(connection, held.node.id, why, token=held.token, now=now, due_at=due_at)
