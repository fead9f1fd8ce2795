"""Gives node pools as many leases as they want nodes, gives up those that do not get ready, and finishes deleted ones.

A pool gets its first leases, and those that it grows by, in the request of its customer. This loop replaces the ones
that ended since, such as those of lost machines, each admitted on its own like any other lease. A refusal is shown at
the pool, and tried again; where leases keep failing, each try waits longer. Which pools need something is seen in
their rows, so steady ones cost no write.
"""

from datetime import timedelta
from functools import partial

from control_plane.db import admission_decisions, node_pools
from control_plane.db.connection import Connection
from control_plane.domain.decision import Action, NotAdmitted
from control_plane.domain.ids import AdmissionDecisionId, NodePoolId
from control_plane.domain.node_pool import (
    BackOff,
    Close,
    Delete,
    LookAgain,
    NodePool,
    NodePoolEvent,
    Release,
    Replace,
    decide,
    step,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.transitions import Moved
from control_plane.outcomes import node_pools as outcomes
from reconciler.loop import Loop, Report, each
from reconciler.world import World

NAME = "scale_pools"
POOLS_PER_ACTIVATION_MAX = 100
TRIED_AGAIN_AFTER = timedelta(seconds=30)
"""The time between two tries to have a node admitted, and between two looks at a pool that backs off."""


async def activate(world: World) -> Report:
    async with world.db.reading() as connection:
        due = await node_pools.due(connection, now=world.now(), limit=POOLS_PER_ACTIVATION_MAX)
    report = Report(looked_at=len(due))
    for pool_id in due:  # One by one: together they would take every connection of the pool of connections.
        await each([pool_id], partial(_scale, world, report), report)
    report.more = len(due) == POOLS_PER_ACTIVATION_MAX and report.acted_on > 0
    return report


async def _scale(world: World, report: Report, pool_id: NodePoolId) -> None:
    async with world.db.transaction() as connection:
        pool = await node_pools.take(connection, pool_id, now=world.now())
        if pool is not None:
            report.count(await _act(connection, world, pool))


async def _act(connection: Connection, world: World, pool: NodePool) -> bool:
    now, actor = world.now(), world.actor(NAME)
    members = await node_pools.members(connection, pool.id)
    ended_why = await node_pools.ended_why(connection, pool)
    match decide(pool, members, ended_why=ended_why, now=now):
        case Delete(event, why):
            return await outcomes.delete(connection, pool, event, why=why, actor=actor, now=now)
        case Release(lease_ids):
            why = f"the node pool {pool.name} wants {pool.nodes} nodes"
            return bool(await outcomes.release(connection, lease_ids, why=why, actor=actor, now=now))
        case Replace(count):
            return await _replace(connection, world, pool, count)
        case BackOff(until, why):
            refused = Refused(RefusalCode.NODE_POOL_FAILING, why)
            # What else may have to be done about the pool, such as deleting it, does not wait for so long.
            due_at = min(until, now + TRIED_AGAIN_AFTER)
            await node_pools.wait(connection, pool.id, refused, now=now, due_at=due_at)
        case LookAgain(due_at):
            await node_pools.due_again(connection, pool.id, due_at=due_at)
        case Close():
            moved = step(pool.state, NodePoolEvent.EMPTIED)
            return isinstance(moved, Moved) and await node_pools.move(connection, pool, moved, now=now)
        case None:
            pass
    return False


async def _replace(connection: Connection, world: World, pool: NodePool, count: int) -> bool:
    """Replace ended leases one by one, until one is refused: what the limits allow is better than nothing."""
    now, actor = world.now(), world.actor(NAME)
    for number in range(count):
        made = await outcomes.lease(
            connection, pool, 1, Action.NODE_REPLACE, world.new_id, actor=actor, now=now
        )
        if isinstance(made, Refused):
            await _refused(connection, world, pool, made)
            return number > 0
    await node_pools.due_again(connection, pool.id, due_at=now)
    return True


async def _refused(connection: Connection, world: World, pool: NodePool, refused: Refused) -> None:
    """Show the refusal at the pool. Its decision is stored when the code is another one than before."""
    now = world.now()
    await node_pools.wait(connection, pool.id, refused, now=now, due_at=now + TRIED_AGAIN_AFTER)
    if isinstance(refused, NotAdmitted) and refused.code != pool.waiting_code:
        decision_id = AdmissionDecisionId(world.new_id())
        made = [(decision_id, outcomes.place_of(pool).about, refused.decision)]
        await admission_decisions.insert(connection, made, actor=world.actor(NAME), now=now)


LOOP = Loop(NAME, timedelta(seconds=2), activate, wakes=("place_leases", "release_machines"))
