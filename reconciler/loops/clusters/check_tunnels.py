"""Looks at the tunnels of open nodes once an hour: what reaches them from outside, and how large packets may be.

A node that was taken for reachable and is behind NAT, or the other way round, is put right on the peer map. A path that
loses large packets is shown at the node. Nothing is ended because of it.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import node_tunnels, nodes, overlays, server_hosts
from control_plane.domain.ids import NodeId
from control_plane.domain.node_tunnels import AGAIN, Look, judge
from data_plane.access.port import AccessError
from reconciler.loop import Loop, Report, each
from reconciler.node_joining import outside_of
from reconciler.nodes import HELD_FOR, kept, loaded
from reconciler.server_hosts import target
from reconciler.worlds.clusters import ClusterWorld

NAME = "check_tunnels"
NODES_PER_ACTIVATION_MAX = 32
LASTS = timedelta(minutes=2)
"""Of an activation."""


async def activate(world: ClusterWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await node_tunnels.take(
            connection, token=token, now=now, until=now + HELD_FOR, limit=NODES_PER_ACTIVATION_MAX
        )
    report = Report(looked_at=len(due), more=len(due) == NODES_PER_ACTIVATION_MAX)
    async with kept(world, due, token):
        await each(due, lambda node_id: _look(world, node_id, token, report), report)
    return report


async def _look(world: ClusterWorld, node_id: NodeId, token: UUID, report: Report) -> None:
    async with world.db.reading() as connection:
        node = await nodes.get(connection, node_id)
        if node is None:
            raise LookupError(f"there is no node {node_id}")
        misses = await node_tunnels.misses(connection, node_id)
        hosts = await server_hosts.of_cluster(connection, node.cluster_id)
    held = await loaded(world, node, token)
    try:
        heard = await world.members.hears(held.machine, target(hosts[0]))
        look = Look(heard, await world.members.probe(held.machine, held.server_address))
    except AccessError as error:
        report.notes.append(f"{node.name}: {type(error).__name__}: {error}")
        async with world.db.statement() as connection:
            await node_tunnels.wait(connection, node_id, token=token, due_at=world.now() + AGAIN)
        return
    verdict = judge(look, endpoint=node.endpoint, candidate=outside_of(held.machine), misses=misses)
    if verdict.problem is not None:
        report.notes.append(f"{node.name}: {verdict.problem}")
    found = {
        "checked_at": world.now().isoformat(),
        "heard_from_outside": heard,
        "misses": verdict.misses,
        "largest_packet": look.largest_packet,
        "problem": verdict.problem,
    }
    async with world.db.transaction() as connection:
        due_at = world.now() + verdict.due_after
        stored = await node_tunnels.store(
            connection, node_id, found, verdict.endpoint, token=token, due_at=due_at
        )
        if stored and verdict.endpoint != node.endpoint:
            await overlays.soon(connection, node.cluster_id, now=world.now())
            report.count(1)


LOOP = Loop(NAME, timedelta(seconds=10), activate, lasts=LASTS, wakes=("sync_overlay",))
