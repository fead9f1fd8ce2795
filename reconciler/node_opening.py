"""Opens nodes for pods: the leases begin first, and the nodes take pods at once after that.

So nobody uses a node that nobody pays for. Between the two lies one request for each node. A worker that dies there
leaves nodes whose leases have begun and that are not open, and the next activation opens them. A node that cannot be
opened for `OPEN_MAX` has failed, unless it is our side that does not answer. Nothing is billed of a node that was never
opened, however its lease ends (`outcomes/leases.py`).
"""

from control_plane.db import leases, node_openings, node_pools, nodes
from control_plane.db.connection import Connection
from control_plane.domain import node_pool
from control_plane.domain.failure import FailReason
from control_plane.domain.machine import MachineEvent, MachineFailure
from control_plane.domain.node import JoinStep, Node, NodeEvent, may_open, step
from control_plane.domain.node_deadline import opening_has_failed
from control_plane.domain.node_pool import NodePoolEvent, NodePoolState
from control_plane.domain.transitions import Moved
from control_plane.outcomes import claims as outcomes
from control_plane.outcomes import machines as machine_outcomes
from control_plane.vault.errors import KeyManagerError
from data_plane.cluster import node as in_cluster
from data_plane.cluster.port import KubernetesPort, TooManyRequests, Unauthorized, Unreachable
from reconciler.cluster_metrics import FAILED, OPENED, count_join
from reconciler.loop import Report, each
from reconciler.node_joining import HeldUp, Hostile, NotYet, let_plugin_run, node_of, problem_of
from reconciler.nodes import OURS, Held, loaded
from reconciler.server_hosts import connected
from reconciler.worlds.clusters import ClusterWorld

ACTOR = "join_nodes"
UNOPENED_PER_ACTIVATION_MAX = 64
_UNANSWERED = (Unreachable, Unauthorized, TooManyRequests, KeyManagerError)
"""Errors that say nothing about a node: an outage of ours must not end all nodes that were to be opened."""


async def open_nodes(world: ClusterWorld, held: Held) -> int:
    """Open a healthy node, alone or with all others of a pool that becomes ready with it.

    Returns how many leases began. Raises NotYet while the node is unhealthy again, and HeldUp while others are.
    """
    async with connected(world, held.cluster) as port:
        await _see_healthy(world, port, held)
        opening = [await loaded(world, node, held.token) for node in await _opening(world, held)]
        for other in opening:
            if other.node.id != held.node.id:
                await _see_other_healthy(world, port, other)
        await _begin(world, held, [other.node for other in opening])
        for other in opening:
            await _open(world, port, other)
    return len(opening)


async def _see_healthy(world: ClusterWorld, port: KubernetesPort, held: Held) -> None:
    problem = await _problem(world, port, held)
    since = None if problem is None else held.node.unready_since or world.now()
    if since != held.node.unready_since:
        async with world.db.statement() as connection:
            await node_openings.keep_unready(connection, held.node.id, since, token=held.token)
    if problem is not None:
        raise NotYet(problem)


async def _see_other_healthy(world: ClusterWorld, port: KubernetesPort, other: Held) -> None:
    """Raises HeldUp, whatever is wrong: whoever holds the other node finds the same, and decides about it."""
    try:
        problem = await _problem(world, port, other)
    except (Hostile, NotYet) as error:
        problem = str(error)
    if problem is not None:
        raise HeldUp(f"{other.node.name}: {problem}")


async def _problem(world: ClusterWorld, port: KubernetesPort, held: Held) -> str | None:
    found = await node_of(port, held)
    await let_plugin_run(world, port, held, found)
    return problem_of(world, found, held.place)


async def _opening(world: ClusterWorld, held: Held) -> list[Node]:
    """Which nodes this worker opens now. One worker opens all nodes of a new pool. Raises HeldUp."""
    async with world.db.reading() as connection:
        pool = await node_pools.get(connection, held.node.node_pool_id)
        healthy = await node_openings.healthy_in(connection, held.node.node_pool_id)
    if pool is None or pool.state not in node_pool.WANTED:
        raise HeldUp("its pool is being deleted")
    if held.node.id not in {node.id for node in healthy}:
        raise HeldUp("its lease has ended, or its machine is suspect")
    was_ready = pool.state is NodePoolState.READY
    if not may_open(pool_was_ready=was_ready, wanted=pool.nodes, healthy=len(healthy)):
        raise HeldUp(f"{len(healthy)} of the {pool.nodes} nodes of its pool are healthy")
    if was_ready:
        return [held.node]
    if healthy[0].id != held.node.id:
        raise HeldUp("it is opened together with the other nodes of its pool")
    return healthy


async def _begin(world: ClusterWorld, held: Held, opening: list[Node]) -> None:
    """Let the leases begin, all in one transaction, with the pool's state. Raises HeldUp when one of them cannot."""
    async with world.db.transaction() as connection:
        pool = await node_pools.lock(connection, held.node.node_pool_id)
        if pool is None or not await nodes.is_held(connection, held.node.id, token=held.token):
            raise HeldUp("another worker opens it")
        if pool.state is not NodePoolState.READY:
            moved = node_pool.step(pool.state, NodePoolEvent.OPENED)
            if not isinstance(moved, Moved) or len(opening) < pool.nodes:
                raise HeldUp("its pool changed meanwhile")
            await node_pools.move(connection, pool, moved, why=None, now=world.now())
        await _begin_leases(world, connection, opening)


async def _begin_leases(world: ClusterWorld, connection: Connection, opening: list[Node]) -> None:
    found = await leases.lock(connection, [node.lease_id for node in opening])
    now = world.now()
    for node in opening:
        moved = step(node.state, NodeEvent.ADMITTED)
        lease = found.get(node.lease_id)
        if lease is None or not isinstance(moved, Moved):
            raise HeldUp("its lease has ended")
        if not await outcomes.open_node(connection, lease, node.claim_id, actor=world.actor(ACTOR), now=now):
            raise HeldUp(f"the lease of {node.name} has ended, or its machine is suspect")
        if not await nodes.move(connection, node, moved, now=now):
            raise HeldUp(f"{node.name} changed meanwhile")


async def _open(world: ClusterWorld, port: KubernetesPort, held: Held) -> None:
    marks = held.marks
    await in_cluster.admit(port, held.node.name, marks)
    evidence = {
        "organization": marks.tenant.organization,
        "project": marks.tenant.project,
        "lease": marks.lease,
        "pool": marks.pool,
        "labels": dict(marks.labels),
    }
    async with world.db.statement() as connection:
        is_first = await node_openings.note_step(
            connection, held.node.id, JoinStep.OPENED, evidence, now=world.now()
        )
    if is_first:  # Another worker may have opened it at the same time.
        count_join(held.cluster.name, OPENED, world.now() - held.node.created_at)


async def open_rest(world: ClusterWorld, report: Report) -> None:
    """Open nodes whose leases have begun, and that nobody opened yet."""
    async with world.db.reading() as connection:
        found = await node_openings.unopened(connection, limit=UNOPENED_PER_ACTIVATION_MAX)
    await each(found, lambda node: _open_one(world, node, report), report)


async def _open_one(world: ClusterWorld, node: Node, report: Report) -> None:
    held = await loaded(world, node, world.new_id())
    try:
        async with connected(world, held.cluster) as port:
            await _open(world, port, held)
    except OURS as error:
        why = f"{type(error).__name__}: {error}"
        report.errors.append(f"{node.name}: it cannot be opened: {why}")
        if not isinstance(error, _UNANSWERED) and opening_has_failed(node, world.now()):
            await _fail(world, node, why)
            count_join(held.cluster.name, FAILED)


async def _fail(world: ClusterWorld, node: Node, why: str) -> None:
    """End its lease, which is not billed. leave_nodes takes the node out, and its pool replaces it."""
    failure = MachineFailure(
        MachineEvent.FAILED, FailReason.NODE_LOST, "it could not be opened for pods", provider_words=why
    )
    async with world.db.transaction() as connection:
        await machine_outcomes.fail(
            connection, node.machine_id, failure, actor=world.actor(ACTOR), now=world.now()
        )
