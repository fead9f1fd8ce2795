"""Looks at open nodes: puts right what was changed about them, and gives up those that are lost or lie.

A node that is not ready may only be cut off from us, so losing contact ends nothing by itself (`node_health.py`). An
API server that does not answer says nothing about its nodes. When every node of a cluster is unready and their
providers list them, the trouble is ours, and none of them is given up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import nodes
from control_plane.domain import node_health
from control_plane.domain.failure import FailReason
from control_plane.domain.ids import ClusterId
from control_plane.domain.machine import MachineEvent, MachineFailure
from control_plane.domain.node import Node, NodeState
from control_plane.domain.node_capacity import Finding
from control_plane.outcomes import machines as machine_outcomes
from data_plane.cluster import node as in_cluster
from data_plane.cluster.capacity import claimed_capacity
from data_plane.cluster.port import KubernetesPort
from data_plane.cluster.resource import NODE, Object
from reconciler.loop import Loop, Report, each
from reconciler.node_joining import conditions, judge, reported
from reconciler.nodes import HELD_FOR, OURS, Held, loaded, wait
from reconciler.server_hosts import connected
from reconciler.worlds.clusters import ClusterWorld

NAME = "watch_nodes"
NODES_PER_ACTIVATION_MAX = 200
LOST_PER_ACTIVATION_MAX = 2
"""Of one cluster, so that a mistake of ours does not end a fleet at once."""
EVERY = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found about an open node."""

    held: Held
    found: Object | None
    """Its Node; None when there is none."""

    @property
    def problem(self) -> str | None:
        if self.found is None:
            return "its Node was deleted"
        return node_health.problem(conditions(self.found))

    @property
    def lie(self) -> str | None:
        """Why it is hostile, as a sentence; None when it is not."""
        if self.found is None:
            return None
        if self.found["metadata"]["uid"] != self.held.node.uid:
            return "its Node was replaced by another one of the same name"
        try:
            verdict = judge(self.held, claimed_capacity(self.found))
        except ValueError as error:
            return f"its capacity cannot be read: {error}"
        return "; ".join(verdict.reasons) if verdict.finding is Finding.EXCESS else None

    def unready_since(self, now: datetime) -> datetime | None:
        return None if self.problem is None else self.held.node.unready_since or now


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
    await each(of_cluster.values(), lambda group: _watch(world, group, token, report), report)
    return report


async def _watch(world: ClusterWorld, group: Sequence[Node], token: UUID, report: Report) -> None:
    held = [await loaded(world, node, token) for node in group]
    try:
        async with connected(world, held[0].cluster) as port:
            listed: Mapping[str, Object] = {each["metadata"]["name"]: each for each in await port.list(NODE)}
            looks = [_Look(each, listed.get(each.node.name)) for each in held]
            for look in looks:
                report.count(await _repair(port, look))
    except OURS as error:
        report.errors.append(f"{held[0].cluster.name}: {type(error).__name__}: {error}")
        for each_held in held:
            await wait(world, each_held, EVERY)
        return
    await _give_up(world, looks, report)
    for look in looks:
        await _store(world, look)


async def _repair(port: KubernetesPort, look: _Look) -> int:
    """Put labels and taints right that somebody changed. Returns how many nodes were changed."""
    if look.found is None or look.lie is not None or not in_cluster.differs(look.found, look.held.marks):
        return 0
    await in_cluster.admit(port, look.held.node.name, look.held.marks)
    return 1


async def _give_up(world: ClusterWorld, looks: Sequence[_Look], report: Report) -> None:
    now = world.now()
    for look in looks:
        if look.lie is not None:
            event, reason = MachineEvent.DISPROVEN, FailReason.NODE_HOSTILE
            report.count(await _fail(world, look, MachineFailure(event, reason, look.lie, failed_since=now)))
    unready = [look for look in looks if look.problem is not None]
    if len(looks) > 1 and len(unready) == len(looks):
        unready = [look for look in unready if look.held.place.missed_since is not None]
        if not unready:
            report.errors.append(f"{looks[0].held.cluster.name}: every node is unready, so none is given up")
    for look in unready[:LOST_PER_ACTIVATION_MAX]:
        since = look.unready_since(now)
        lost = None if since is None else node_health.lost(since, look.held.place.missed_since, now)
        if lost is not None:
            failure = MachineFailure(
                MachineEvent.FAILED, FailReason.NODE_LOST, f"{lost.why}: {look.problem}", failed_since=since
            )
            report.count(await _fail(world, look, failure))


async def _fail(world: ClusterWorld, look: _Look, failure: MachineFailure) -> int:
    """End the lease of a node. leave_nodes takes it out, and its pool replaces it."""
    async with world.db.transaction() as connection:
        failed = await machine_outcomes.fail(
            connection, look.held.node.machine_id, failure, actor=world.actor(NAME), now=world.now()
        )
    return int(failed)


async def _store(world: ClusterWorld, look: _Look) -> None:
    now = world.now()
    told = {} if look.found is None else reported(look.found)
    async with world.db.transaction() as connection:
        await nodes.report(
            connection,
            look.held.node,
            told,
            unready_since=look.unready_since(now),
            token=look.held.token,
            due_at=now + EVERY,
        )


LOOP = Loop(NAME, timedelta(seconds=5), activate, lasts=HELD_FOR, wakes=("leave_nodes",))
