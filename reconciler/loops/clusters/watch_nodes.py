"""Looks at open nodes: gives up those that are lost or lie, and puts right what was changed about the others.

A node is judged together with all open nodes of its cluster (`domain/node_watch.py`), so an activation looks at a
cluster as a whole when one of its nodes is due. An API server that does not answer says nothing about its nodes. What
cannot be put right at one node holds up no other one.

A Node of a machine that has left the cluster is deleted: its kubelet may still hold a certificate, and register it.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from control_plane.db import nodes
from control_plane.db.nodes import OpenNode
from control_plane.domain import node_watch
from control_plane.domain.ids import ClusterId, NodeId
from control_plane.domain.machine import MachineFailure
from control_plane.domain.node import Node, NodeState
from control_plane.domain.node_capacity import Finding
from control_plane.domain.node_health import Unready, unready
from control_plane.outcomes import machines as machine_outcomes
from data_plane.cluster import bootstrap_token
from data_plane.cluster import node as in_cluster
from data_plane.cluster.capacity import claimed_capacity
from data_plane.cluster.node import Marks
from data_plane.cluster.port import ClusterError, KubernetesPort, Unauthorized, Unreachable
from data_plane.cluster.resource import NODE, Object
from reconciler.cluster_metrics import note_answer, note_asked
from reconciler.loop import Loop, Report, each
from reconciler.node_joining import conditions, gpu_problem, judge, reported
from reconciler.node_reach import reached
from reconciler.nodes import HELD_FOR, OURS, Held, kept, loaded, wait
from reconciler.server_hosts import connected
from reconciler.worlds.clusters import ClusterWorld

NAME = "watch_nodes"
NODES_PER_ACTIVATION_MAX = 200
STRAYS_PER_ACTIVATION_MAX = 8
"""Nodes of one cluster that are deleted because their machines have left it."""
EVERY = timedelta(seconds=30)
LASTS = timedelta(minutes=10)
"""Longer than looking at all nodes of a cluster takes, and putting them right."""

_Listed = Mapping[str, Object]
"""The Nodes of a cluster by their names."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found about an open node."""

    node: OpenNode
    found: Object | None
    """Its Node; None when there is none."""
    unready: Unready | None
    lie: str | None


async def activate(world: ClusterWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await nodes.take(
            connection,
            NodeState.READY,
            token=token,
            now=now,
            until=now + HELD_FOR,
            limit=NODES_PER_ACTIVATION_MAX,
        )
    report = Report(looked_at=len(due), more=len(due) == NODES_PER_ACTIVATION_MAX)
    of_cluster: dict[ClusterId, list[Node]] = {}
    for node in due:
        of_cluster.setdefault(node.cluster_id, []).append(node)
    async with kept(world, [node.id for node in due], token):
        await each(of_cluster.values(), lambda group: _watch(world, group, token, report), report)
    return report


async def _watch(world: ClusterWorld, group: Sequence[Node], token: UUID, report: Report) -> None:
    held = {node.id: await loaded(world, node, token) for node in group}
    cluster = held[group[0].id].cluster
    note_asked(cluster.name, world.now())
    try:
        async with connected(world, cluster) as port:
            listed: _Listed = {each["metadata"]["name"]: each for each in await port.list(NODE)}
            note_answer(cluster.name, world.now())
            async with world.db.reading() as connection:
                open_nodes = await nodes.open_in(connection, cluster.id)
                strays = await nodes.gone_among(connection, cluster.id, listed)
            looks = {node.id: _look(world, node, listed.get(node.name), world.now()) for node in open_nodes}
            given_up, quarantined = await _give_up(world, held, looks, report)
            kept = [each for each in looks.values() if each.node.id in held.keys() - given_up]
            changes = _changes(port, held, kept, strays[:STRAYS_PER_ACTIVATION_MAX], quarantined)
            await _put_right(changes, report)
    except OURS as error:
        report.errors.append(f"{cluster.name}: {type(error).__name__}: {error}")
        for each_held in held.values():
            await wait(world, each_held, EVERY)
        return
    for node_id, each_held in held.items():
        await _store(world, each_held, looks.get(node_id))


def _look(world: ClusterWorld, node: OpenNode, found: Object | None, now: datetime) -> _Look:
    told = None if found is None else conditions(found)
    lacks = None if found is None else gpu_problem(world, found, node)
    state = unready(told, gpu_problem=lacks, since=node.unready_since, now=now)
    return _Look(node, found, state, None if found is None else _lie(node, found))


def _lie(node: OpenNode, found: Object) -> str | None:
    """Why it is hostile, as a sentence; None when it is not."""
    if found["metadata"]["uid"] != node.uid:
        return "its Node was replaced by another one of the same name"
    try:
        verdict = judge(node, claimed_capacity(found))
    except ValueError:
        return (
            "its capacity cannot be read"  # Customers read this. What the node wrote is in `nodes.reported`.
        )
    return "; ".join(verdict.reasons) if verdict.finding is Finding.EXCESS else None


async def _give_up(
    world: ClusterWorld, held: Mapping[NodeId, Held], looks: Mapping[NodeId, _Look], report: Report
) -> tuple[set[NodeId], frozenset[NodeId]]:
    """End the leases of nodes that are lost or hostile. leave_nodes takes them out, and their pools replace them.

    Nodes that another worker holds are given up by that one. Returns those that were given up, and those that are kept
    although they seem to lie.
    """
    now = world.now()
    seen = [
        node_watch.OpenNode(
            node_id,
            look.node.name,
            look.node.account,
            look.lie,
            look.unready,
            look.node.missed_since,
            gives_gpus=look.node.gpu_count > 0 and look.unready is None,
        )
        for node_id, look in looks.items()
    ]
    due = node_watch.to_reach(seen, now)
    if due:
        found = await reached(world, next(iter(held.values())).cluster, [looks[each].node for each in due])
        seen = [replace(node, reach=found.get(node.id)) for node in seen]
    decision = node_watch.decide(seen, now)
    report.errors.extend(f"{_cluster_of(held)}: {why}" for why in decision.frozen)
    ended = {
        node_id
        for node_id, failure in decision.given_up
        if node_id in held and await _fail(world, held[node_id].node, failure, now)
    }
    report.count(len(ended))
    return ended, decision.quarantined


def _cluster_of(held: Mapping[NodeId, Held]) -> str:
    return next(iter(held.values())).cluster.name


async def _fail(world: ClusterWorld, node: Node, failure: MachineFailure, now: datetime) -> bool:
    async with world.db.transaction() as connection:
        return await machine_outcomes.fail(
            connection, node.machine_id, failure, actor=world.actor(NAME), now=now
        )


_Change = Callable[[], Awaitable[int]]


def _changes(
    port: KubernetesPort,
    held: Mapping[NodeId, Held],
    looks: Sequence[_Look],
    strays: Sequence[str],
    quarantined: Collection[NodeId],
) -> dict[str, _Change]:
    """What may have to be put right in the cluster, by the name of the Node."""
    changes: dict[str, _Change] = {
        look.node.name: partial(
            _quarantine if look.node.id in quarantined else _repair, port, look, held[look.node.id].marks
        )
        for look in looks
    }
    return {**changes, **{name: partial(_delete_stray, port, name) for name in strays}}


async def _put_right(changes: Mapping[str, _Change], report: Report) -> None:
    """Make the changes. What fails at one Node is reported, and holds up no other one."""
    for name, change in changes.items():
        try:
            report.count(await change())
        except ClusterError as error:
            report.errors.append(f"{name}: {type(error).__name__}: {error}")
            if isinstance(error, Unreachable | Unauthorized):
                return  # The others would fail in the same way.


async def _repair(port: KubernetesPort, look: _Look, marks: Marks) -> int:
    """Put labels and taints right that somebody changed. Returns how many nodes were changed."""
    if look.found is None or look.lie is not None or not in_cluster.differs(look.found, marks):
        return 0
    await in_cluster.admit(port, look.node.name, marks)
    return 1


async def _quarantine(port: KubernetesPort, look: _Look, marks: Marks) -> int:
    """Keep new pods off a node that seems to lie. Returns how many nodes were changed."""
    if look.found is None or in_cluster.is_quarantined(look.found):
        return 0
    await in_cluster.quarantine(port, look.node.name, marks)
    return 1


async def _delete_stray(port: KubernetesPort, name: str) -> int:
    await bootstrap_token.expect_no_longer(port, name)
    await in_cluster.forget(port, name)
    return 1


async def _store(world: ClusterWorld, held: Held, look: _Look | None) -> None:
    """Store what a look found. A node has none when its claim ended meanwhile."""
    due_at = world.now() + EVERY
    if look is None:
        await wait(world, held, EVERY)
        return
    found = look.found
    told = {} if found is None else reported(found, gpu_problem(world, found, look.node))
    async with world.db.transaction() as connection:
        await nodes.report(
            connection,
            held.node,
            told,
            unready_since=None if look.unready is None else look.unready.since,
            token=held.token,
            due_at=due_at,
        )


LOOP = Loop(NAME, timedelta(seconds=5), activate, lasts=LASTS, wakes=("leave_nodes",))
