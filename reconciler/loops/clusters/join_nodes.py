"""Makes verified machines nodes of their clusters, after which their leases are READY and billed.

A machine that was bought as a node becomes one when it is verified. It takes the steps of `domain/node.py`, each with
stored evidence; whoever takes it over after a crash goes on at the first step without evidence. It registers with a
taint that keeps pods away. The taint goes, and the lease is ready, when what it claims is what was bought, and, until
its pool was ready once, when all nodes of the pool are healthy.

A machine that does not become a node in time leaves, and its lease tries another one.
"""

from datetime import timedelta
from uuid import UUID

from control_plane.db import leases, node_pools, nodes
from control_plane.db.connection import Connection
from control_plane.domain import node_pool
from control_plane.domain.deadline import TRIED_FIRST
from control_plane.domain.ids import NodeId
from control_plane.domain.node import (
    JOIN_MAX,
    STEP_TRIES_MAX,
    JoinStep,
    LeaveReason,
    Node,
    NodeEvent,
    NodeState,
    name_of,
    next_join_step,
    step,
)
from control_plane.domain.node_pool import NodePoolEvent, NodePoolState
from control_plane.domain.transitions import Moved
from control_plane.outcomes import claims as outcomes
from data_plane.access.port import AccessError, StepFailed, Unreachable
from reconciler.loop import Loop, Report, each
from reconciler.node_joining import STEPS, Hostile, NotYet
from reconciler.nodes import HELD_FOR, OURS, Held, fail, leave, loaded, take_step, wait
from reconciler.worlds.clusters import ClusterWorld

NAME = "join_nodes"
NODES_PER_ACTIVATION_MAX = 32
SOON = timedelta(seconds=2)
AGAIN = timedelta(seconds=10)


async def activate(world: ClusterWorld) -> Report:
    await _begin(world)
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        due = await nodes.take(
            connection,
            NodeState.JOINING,
            token=token,
            now=now,
            until=now + HELD_FOR,
            limit=NODES_PER_ACTIVATION_MAX,
        )
    report = Report(looked_at=len(due), more=len(due) == NODES_PER_ACTIVATION_MAX)
    await each(due, lambda node: _join(world, node, token, report), report)
    return report


async def _begin(world: ClusterWorld) -> None:
    """Let verified machines that were bought as nodes be nodes."""
    async with world.db.transaction() as connection:
        now = world.now()
        await nodes.free_abandoned(connection, now=now, deadline_at=now + TRIED_FIRST)
        found = await nodes.candidates(connection, limit=NODES_PER_ACTIVATION_MAX)
        if found:
            await nodes.lock_numbers(connection)
            found = await nodes.candidates(connection, limit=NODES_PER_ACTIVATION_MAX)
        for candidate in found:
            node_id = NodeId(world.new_id())
            await nodes.insert(
                connection, node_id, candidate, name=name_of(node_id), now=now, deadline_at=now + JOIN_MAX
            )


async def _join(world: ClusterWorld, node: Node, token: UUID, report: Report) -> None:
    held = await loaded(world, node, token)
    if held.place.claim_ended:
        await wait(world, held, AGAIN)  # leave_nodes takes it out.
        return
    try:
        while await _next(world, held, report):
            held = await loaded(world, await _current(world, held), token)
    except NotYet as error:
        await wait(world, held, SOON, str(error))
    except Hostile as error:
        report.notes.append(f"{node.name}: {error}")
        await leave(world, held, NodeEvent.HOSTILE, LeaveReason.HOSTILE, str(error))
    except OURS as error:
        report.errors.append(f"{node.name}: {type(error).__name__}: {error}")
        await wait(world, held, AGAIN, f"{type(error).__name__}: {error}", longer=TRIED_FIRST)
    except AccessError as error:
        report.notes.append(f"{node.name}: {type(error).__name__}: {error}")
        await _try_again_or_leave(world, held, error)


async def _current(world: ClusterWorld, held: Held) -> Node:
    async with world.db.reading() as connection:
        found = await nodes.get(connection, held.node.id)
    return found or held.node


async def _try_again_or_leave(world: ClusterWorld, held: Held, error: AccessError) -> None:
    """A machine that cannot be reached has until its deadline; a step that fails has a few tries."""
    failed = not isinstance(error, Unreachable) and held.node.tries + 1 >= STEP_TRIES_MAX
    if failed or world.now() >= held.node.deadline_at:
        await leave(world, held, NodeEvent.FAILED, LeaveReason.FAILED, f"{type(error).__name__}: {error}")
    else:
        await fail(world, held, error)


async def _next(world: ClusterWorld, held: Held, report: Report) -> bool:
    """Take the next step. False when the node is open, or another worker holds it."""
    async with world.db.reading() as connection:
        taken = await nodes.steps(connection, held.node.id)
    due = next_join_step([each for each in JoinStep if each in taken])
    if due is None:
        report.count(await _open_all(world, held))
        return False
    try:
        evidence = await STEPS[due](world, held)
    except NotYet:
        if due is not JoinStep.OPENED and world.now() >= held.node.deadline_at:
            raise StepFailed(due, None, "it was not done in time") from None
        raise
    return await take_step(world, held, due, evidence)


async def _open_all(world: ClusterWorld, held: Held) -> int:
    """Let the leases of open nodes begin: of this one, or of all nodes of a pool that becomes ready with it.

    Returns how many began.
    """
    async with world.db.transaction() as connection:
        pool = await node_pools.lock(connection, held.node.node_pool_id)
        if pool is None:
            raise LookupError(f"{held.node.name} is in no pool")
        opened = await nodes.joining_with(connection, pool.id, JoinStep.OPENED)
        now = world.now()
        if pool.state is NodePoolState.PENDING:
            moved = node_pool.step(pool.state, NodePoolEvent.OPENED)
            if len(opened) >= pool.nodes and isinstance(moved, Moved):
                began = await _begin_leases(world, connection, opened)
                await node_pools.move(connection, pool, moved, why=None, now=now)
                return began
        elif pool.state is NodePoolState.READY:
            return await _begin_leases(
                world, connection, [each for each in opened if each.id == held.node.id]
            )
    raise NotYet("it is open, and the rest of its pool is not yet")


async def _begin_leases(world: ClusterWorld, connection: Connection, opened: list[Node]) -> int:
    """Nodes and leases become ready together. Raises NotYet, which rolls all of it back, if one of them cannot."""
    found = await leases.lock(connection, [node.lease_id for node in opened])
    now = world.now()
    for node in opened:
        moved = step(node.state, NodeEvent.ADMITTED)
        lease = found.get(node.lease_id)
        if lease is None or not isinstance(moved, Moved):
            raise NotYet("its lease has ended")
        if not await outcomes.open_node(connection, lease, node.claim_id, actor=world.actor(NAME), now=now):
            raise NotYet(f"the lease of {node.name} has ended, or its machine is suspect")
        if not await nodes.move(connection, node, moved, now=now):
            raise NotYet(f"{node.name} changed meanwhile")
    return len(opened)


LOOP = Loop(
    NAME,
    timedelta(seconds=2),
    activate,
    lasts=HELD_FOR,
    wakes=("sync_overlay", "leave_nodes", "place_leases"),
)
