"""One look at what a project has in a cluster: its scaled node pools, their nodes, and the pods that need nodes.

Which nodes a pool has is a matter of our rows. What the cluster says of a node counts as far as it was sold: a node
that claims more changes no decision.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from control_plane.db import node_pools, scaled_pools
from control_plane.db.connection import Connection
from control_plane.domain.ids import NodePoolId
from control_plane.domain.lease import LeaseState
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.node_capacity import GPU
from control_plane.domain.node_pool import NodePool, back_off
from control_plane.domain.pod_fit import Amounts, NodeFace, NodeTaint, PendingPod
from control_plane.domain.scaled_pool import TRIED_AGAIN_AFTER, PoolNode, ScaledPool
from control_plane.domain.scaling import SHORT_AFTER, Phase, Place, sure_room
from control_plane.domain.scaling import ScaledPool as PoolFacts
from control_plane.domain.sku import Shape
from control_plane.outcomes.market import market_of
from data_plane.cluster.node import is_quarantined
from data_plane.cluster.objects import node as on_node
from data_plane.cluster.objects.tenant import NODE_PROJECT, Tenant
from data_plane.cluster.port import KubernetesPort
from data_plane.cluster.resource import DAEMON_SET, NODE, POD, Object
from reconciler.scaling_objects import (
    NodeUse,
    allocatable_of,
    asks_of_daemon_sets,
    face_of,
    is_consolidating,
    is_cordoned,
    is_ready,
    pending_pods,
    use_of_nodes,
)

SYSTEM = "kube-system"


@dataclass(frozen=True, slots=True)
class Stored:
    """A scaled pool as the rows have it."""

    row: ScaledPool
    pool: NodePool
    nodes: Sequence[PoolNode]
    shape: Shape | None
    """Of a node; None when its SKU is not sold any more."""
    nano_per_hour: Nano | None
    """What a node costs now; None when its SKU is not sold any more."""
    keeps: str | None
    """Why it gets no new node now; None when it may."""

    @property
    def is_short(self) -> bool:
        return self.keeps is None and any(self._has_waited(node) for node in self.nodes)

    def _has_waited(self, node: PoolNode) -> bool:
        return (
            node.state is LeaseState.PLACING
            and node.waiting_since is not None
            and self.row.looked_at is not None
            and self.row.looked_at - node.waiting_since >= SHORT_AFTER
        )


async def stored(connection: Connection, rows: Collection[ScaledPool], now: datetime) -> list[Stored]:
    """The rows with their pools, as far as these are still to have nodes."""
    found = []
    by_pool: dict[NodePoolId, list[PoolNode]] = {}
    for node in await scaled_pools.nodes(connection, [row.node_pool_id for row in rows]):
        by_pool.setdefault(node.node_pool_id, []).append(node)
    for row in rows:
        pool = await node_pools.get(connection, row.node_pool_id)
        if pool is None:
            raise LookupError(f"there is no node pool {row.node_pool_id}")
        market = await market_of(connection, pool.organization_id, pool.request, now)
        price = market.price
        found.append(
            Stored(
                row,
                pool,
                by_pool.get(pool.id, []),
                None if price is None else price.sku.shape,
                None if price is None else Nano(price.nano_per_unit_hour * price.sku.shape.units),
                await _keeps(connection, row, pool, now),
            )
        )
    return found


async def _keeps(connection: Connection, row: ScaledPool, pool: NodePool, now: datetime) -> str | None:
    if row.refused_at is not None and now - row.refused_at < TRIED_AGAIN_AFTER:
        return row.refused_why
    if pool.waiting_why is not None:
        return pool.waiting_why
    backing_off = back_off(await node_pools.members(connection, pool.id), now)
    return None if backing_off is None else backing_off.why


@dataclass(frozen=True, slots=True)
class Inside:
    """What the cluster says about a project."""

    nodes: Mapping[str, Object] = field(default_factory=dict[str, Object])
    """By name."""
    use: Mapping[str, NodeUse] = field(default_factory=dict[str, NodeUse])
    pending: Sequence[PendingPod] = ()
    daemons: Amounts = field(default_factory=Amounts)
    """What DaemonSets take of each new node."""


async def inside(port: KubernetesPort, tenant: Tenant) -> Inside:
    pods = await port.list(POD, tenant.namespace)
    return Inside(
        {
            node["metadata"]["name"]: node
            for node in await port.list(NODE, labels={NODE_PROJECT: tenant.project})
        },
        use_of_nodes([*pods, *await port.list(POD, SYSTEM)]),
        pending_pods(pods),
        asks_of_daemon_sets(await port.list(DAEMON_SET, tenant.namespace)),
    )


def places_of(entry: Stored, cluster: Inside, tenant: Tenant) -> Iterator[Place]:
    """The nodes that a pool has or will have. Leases that are still to be replaced count as nodes on their way."""
    room, face = new_node_room(entry, cluster), face_of_new(entry, tenant)
    for node in entry.nodes:
        thing = None if node.node is None else cluster.nodes.get(node.node)
        if node.state is LeaseState.READY:
            yield _opened(entry, node, thing, cluster)
        else:
            phase = Phase.WAITING if node.state is LeaseState.PLACING else Phase.COMING
            yield Place(str(node.lease_id), entry.pool.name, phase, node.nano_per_hour, node.gpus, room, face)
    for number in range(len(entry.nodes), entry.pool.nodes):
        key, gpus = f"{entry.pool.name}#{number}", 0 if entry.shape is None else entry.shape.gpu_count
        yield Place(key, entry.pool.name, Phase.WAITING, entry.nano_per_hour or NOTHING, gpus, room, face)


def _opened(entry: Stored, node: PoolNode, thing: Object | None, cluster: Inside) -> Place:
    phase, room, face, has_work = Phase.CLOSED, Amounts(), NodeFace(), True
    if thing is not None and node.node is not None:
        use = cluster.use.get(node.node, NodeUse())
        has_work = use.has_work
        face = face_of(thing)
        room = _as_sold(entry, thing).minus(use.asks)
        cordoned_by_others = is_cordoned(thing) and not is_consolidating(thing)
        if is_ready(thing) and not cordoned_by_others and not is_quarantined(thing):
            phase = Phase.OPEN
    return Place(
        str(node.lease_id),
        entry.pool.name,
        phase,
        node.nano_per_hour,
        node.gpus,
        room,
        face,
        has_work,
        node.open_since if phase is Phase.OPEN else None,
    )


def _as_sold(entry: Stored, thing: Object) -> Amounts:
    told = allocatable_of(thing)
    shape = entry.shape
    if shape is None:
        return told
    sold = Amounts(
        shape.vcpus * 1_000,
        shape.memory_gib * 2**30,
        told.pods,
        {GPU: shape.gpu_count} if shape.gpu_count else {},
    )
    return told.least(sold)


def new_node_room(entry: Stored, cluster: Inside) -> Amounts:
    """What a new node is sure to have for pods: as little as one was seen to have, less what DaemonSets take."""
    known = entry.row.room
    if known is not None:
        devices = {name: count for name, count in known.items() if name not in ("cpu", "memory", "pods")}
        room = Amounts(known.get("cpu", 0), known.get("memory", 0), known.get("pods", 0), devices)
    elif entry.shape is not None:
        room = sure_room(entry.shape)
    else:
        return Amounts()
    return room.minus(cluster.daemons)


def seen_room(entry: Stored, cluster: Inside) -> Mapping[str, int] | None:
    """The least that an open node of the pool was ever seen to have for pods."""
    least: Amounts | None = None
    for node in entry.nodes:
        thing = None if node.node is None else cluster.nodes.get(node.node)
        if thing is not None and is_ready(thing):
            has = _as_sold(entry, thing)
            least = has if least is None else least.least(has)
    if least is None:
        return entry.row.room
    found = {"cpu": least.cpu_millis, "memory": least.memory_bytes, "pods": least.pods, **least.devices}
    known = entry.row.room or found
    return {name: min(amount, known.get(name, amount)) for name, amount in found.items()}


def face_of_new(entry: Stored, tenant: Tenant) -> NodeFace:
    """What pods will see of a node of this pool."""
    pool = entry.pool
    has_gpus = entry.shape is not None and entry.shape.gpu_count > 0
    own = on_node.labels(tenant, "le_0", pool.name, has_gpus=has_gpus)
    fixed = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    taint = on_node.tenant_taint(tenant)
    taints = [NodeTaint(each.key, each.value, each.effect) for each in pool.node_taints]
    return NodeFace(
        {**fixed, **pool.node_labels, **own},
        (NodeTaint(taint["key"], taint["value"], taint["effect"]), *taints),
    )


def facts_of(entry: Stored, cluster: Inside, tenant: Tenant, *, nodes_min: int, nodes_max: int) -> PoolFacts:
    """A pool as the rules of scaling see it."""
    return PoolFacts(
        entry.pool.name,
        nodes_min,
        nodes_max,
        new_node_room(entry, cluster),
        face_of_new(entry, tenant),
        0 if entry.shape is None else entry.shape.gpu_count,
        entry.nano_per_hour,
        entry.is_short,
        entry.keeps,
    )
