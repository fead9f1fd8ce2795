"""Takes nodes out of their clusters. A machine is terminated only when nothing of the cluster is left on it.

A node leaves when its claim has ended, or when it did not join. It takes the steps of `domain/node.py`, each with
stored evidence, and each is right when the machine, the Node or the cluster is already gone. A step on a cluster or on
a machine that does not answer is given up after a while, because the machine costs money meanwhile; the evidence says
what was given up.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from uuid import UUID

from control_plane.db import claims, machines, nodes, overlays
from control_plane.db.connection import Connection
from control_plane.domain.cluster import ClusterState
from control_plane.domain.failure import FailReason
from control_plane.domain.machine import MachineEvent, MachineFailure, MachineState
from control_plane.domain.node import (
    CLUSTER_SIDE_MAX,
    CUT_OFF_MAX,
    DRAIN_MAX,
    LeaveReason,
    LeaveStep,
    Node,
    NodeEvent,
    NodeState,
    next_leave_step,
    reason_to_leave,
    step,
)
from control_plane.domain.overlay import RELAY_NUMBER
from control_plane.domain.transitions import Moved
from control_plane.outcomes import machines as machine_outcomes
from data_plane.access.port import AccessError
from data_plane.cluster import bootstrap_token
from data_plane.cluster import node as in_cluster
from data_plane.cluster.drain import drain
from reconciler.loop import Event, Loop, Report, each
from reconciler.nodes import HELD_FOR, LASTS, OURS, Held, fail, hold, kept, loaded, take_step, wait
from reconciler.peer_holders import who_may_list
from reconciler.server_hosts import connected
from reconciler.worlds.clusters import ClusterWorld

NAME = "leave_nodes"
NODES_PER_ACTIVATION_MAX = 32
LOOK_AGAIN = timedelta(seconds=5)

Evidence = Mapping[str, object]


async def activate(world: ClusterWorld) -> Report:
    begun = await _begin(world)
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await nodes.take(
            connection,
            NodeState.LEAVING,
            token=token,
            now=now,
            until=now + HELD_FOR,
            limit=NODES_PER_ACTIVATION_MAX,
        )
    report = Report(len(due) + begun, begun, more=NODES_PER_ACTIVATION_MAX in (len(due), begun))
    async with kept(world, [node.id for node in due], token):
        await each(due, lambda node: _leave(world, node, token, report), report)
    return report


async def _begin(world: ClusterWorld) -> int:
    """Let nodes leave whose claims have ended. What became of the machine says why."""
    async with world.db.transaction() as connection:
        begun = 0
        for found in await nodes.without_claim(connection, now=world.now(), limit=NODES_PER_ACTIVATION_MAX):
            node = await nodes.lock(connection, found.id)
            machine = await machines.get(connection, found.machine_id)
            if node is None or machine is None:
                continue
            reason = reason_to_leave(machine.fail_reason, machine_is_gone=machine.state is MachineState.GONE)
            moved = step(node.state, _EVENTS[reason])
            if isinstance(moved, Moved):
                why = machine.fail_why or "its lease has ended"
                begun += await nodes.move(connection, node, moved, now=world.now(), reason=reason, why=why)
    return begun


_EVENTS = {
    LeaveReason.LEASE_ENDED: NodeEvent.LEAVE,
    LeaveReason.FAILED: NodeEvent.FAILED,
    LeaveReason.LOST: NodeEvent.LOST,
    LeaveReason.TAKEN_AWAY: NodeEvent.LEAVE,
    LeaveReason.HOSTILE: NodeEvent.HOSTILE,
}


async def _leave(world: ClusterWorld, node: Node, token: UUID, report: Report) -> None:
    held = await loaded(world, node, token)
    if node.leave_reason is None:
        raise ValueError(f"{node.name} leaves without a reason")
    while True:
        async with world.db.reading() as connection:
            taken = await nodes.steps(connection, node.id)
        due = next_leave_step(node.leave_reason, [each for each in LeaveStep if each in taken])
        if due is None:
            await _end(world, held, report)
            return
        if not await hold(world, held):
            return
        try:
            evidence = await _STEPS[due](world, held)
        except (AccessError, *OURS) as error:
            why = f"{type(error).__name__}: {error}"
            if not _is_over(world, node):
                report.notes.append(f"{node.name}: {due}: {why}")
                await fail(world, held, error)
                return
            evidence = {"given_up": why}
        if evidence is None:
            await wait(world, held, LOOK_AGAIN)
            return
        if "given_up" in evidence:
            report.errors.append(f"{node.name}: {due} was given up: {evidence['given_up']}")
            facts = {"node": node.name, "step": str(due), "why": str(evidence["given_up"])}
            report.events.append(Event("node_step_given_up", facts))
        if not await take_step(world, held, due, evidence):
            return


def _is_over(world: ClusterWorld, node: Node) -> bool:
    return node.leaving_at is not None and world.now() >= node.leaving_at + CLUSTER_SIDE_MAX


# The steps. Each returns its evidence, or None while it has to wait.


def _has_cluster(held: Held) -> bool:
    return held.cluster.state is not ClusterState.GONE and held.cluster.endpoint is not None


async def _cordon(world: ClusterWorld, held: Held) -> Evidence | None:
    if not _has_cluster(held):
        return {"cluster": "gone"}
    async with connected(world, held.cluster) as port:
        return {"found": await in_cluster.cordon(port, held.node.name)}


async def _drain(world: ClusterWorld, held: Held) -> Evidence | None:
    if not _has_cluster(held):
        return {"cluster": "gone"}
    since = held.node.leaving_at or world.now()
    time_is_up = world.now() >= since + DRAIN_MAX
    async with connected(world, held.cluster) as port:
        look = await drain(port, held.node.name, time_is_up=time_is_up)
    if not look.is_empty and not time_is_up:
        return None
    found = {"killed": list(look.killed), "refused": look.refused, "left": list(look.left)}
    if not look.refused:
        return found
    return {**found, "given_up": f"pods that could not be killed: {', '.join(sorted(look.refused))}"}


async def _delete(world: ClusterWorld, held: Held) -> Evidence | None:
    if not _has_cluster(held):
        return {"cluster": "gone"}
    async with connected(world, held.cluster) as port:
        await in_cluster.forget(port, held.node.name)
        await bootstrap_token.withdraw(port, held.token_id, held.node.name)
    return {"node": held.node.name}


async def _cut_off(world: ClusterWorld, held: Held) -> Evidence | None:
    """Take it off the peer map, and wait until sync_overlay has read every member without its key."""
    async with world.db.transaction() as connection:
        holders = await nodes.holders(connection, held.node.id)
        if holders is None:
            await nodes.lock_numbers(connection)
            holders = await who_may_list(connection, held.node)
            now = world.now()
            await nodes.remove(connection, held.node.id, holders, token=held.token, now=now)
            await overlays.soon(connection, held.cluster.id, now=now)
    if not holders or held.cluster.state is ClusterState.GONE:
        return {"public_key": held.node.public_key, "listed_by": []}
    removed_at = held.node.removed_at
    if removed_at is None or world.now() < removed_at + CUT_OFF_MAX or not _is_over(world, held.node):
        return None
    names = ["the relay" if number == RELAY_NUMBER else f"member {number}" for number in sorted(holders)]
    return {"given_up": f"{', '.join(names)} may still list it"}


async def _clean(world: ClusterWorld, held: Held) -> Evidence | None:
    if held.place.machine_state is MachineState.GONE:
        return {"machine": "gone"}
    found = await world.agents.clean(held.machine)
    evidence = {"left": list(found.left), "looked_for": list(found.looked_for)}
    if found.nothing_left:
        return evidence
    if not _is_over(world, held.node):
        return None
    return {**evidence, "given_up": f"what is left on the machine: {', '.join(found.left)}"}


_STEPS: Mapping[LeaveStep, Callable[[ClusterWorld, Held], Awaitable[Evidence | None]]] = {
    LeaveStep.CORDONED: _cordon,
    LeaveStep.DRAINED: _drain,
    LeaveStep.DELETED: _delete,
    LeaveStep.CUT_OFF: _cut_off,
    LeaveStep.CLEANED: _clean,
}


async def _end(world: ClusterWorld, held: Held, report: Report) -> None:
    """Every step has its evidence. While its kubelet could reach the API server, it may have registered again."""
    try:
        if _has_cluster(held):
            async with connected(world, held.cluster) as port:
                await bootstrap_token.withdraw(port, held.token_id, held.node.name)
                await in_cluster.forget(port, held.node.name)
    except OURS as error:
        if not _is_over(world, held.node):
            await fail(world, held, error)
            return
        report.errors.append(f"{held.node.name}: it may have a Node again: {type(error).__name__}: {error}")
    if await _finish(world, held):
        report.count(1)
    else:
        report.errors.append(f"{held.node.name}: its machine cannot be given up although its claim is open")
        await wait(world, held, LOOK_AGAIN)


async def _finish(world: ClusterWorld, held: Held) -> bool:
    """The node is gone. If its claim is still open, the machine has failed, and its lease tries another one.

    False when that cannot be stored now: a node that is gone never ends a claim.
    """
    now, node = world.now(), held.node
    async with world.db.transaction() as connection:
        if not await _ends_claim(connection, world, held):
            return False
        current = await nodes.lock(connection, node.id)
        if current is None or not await nodes.is_held(connection, node.id, token=held.token):
            raise LookupError(f"another worker holds {node.name}")
        moved = step(current.state, NodeEvent.LEFT)
        return isinstance(moved, Moved) and await nodes.move(connection, current, moved, now=now)


async def _ends_claim(connection: Connection, world: ClusterWorld, held: Held) -> bool:
    """Give up the machine of a node whose claim is open. False when the claim is still open afterwards."""
    node = held.node
    if held.place.claim_ended:
        return True
    failure = MachineFailure(
        MachineEvent.FAILED,
        FailReason.NODE_HOSTILE if node.leave_reason is LeaveReason.HOSTILE else FailReason.NODE_FAILED,
        "it did not become a node of the cluster",
        provider_words=node.leave_why,
    )
    if await machine_outcomes.fail(
        connection, node.machine_id, failure, actor=world.actor(NAME), now=world.now()
    ):
        return True
    left = await claims.open_of_machine(connection, node.machine_id)
    return node.claim_id not in {claim.id for claim in left}


LOOP = Loop(
    NAME,
    timedelta(seconds=2),
    activate,
    lasts=LASTS,
    wakes=("sync_overlay", "release_machines", "terminate_machines", "place_leases", "dismantle_clusters"),
)
