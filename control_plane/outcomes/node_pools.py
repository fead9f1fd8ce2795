"""How a node pool gets its leases and loses them, on an open connection in which the pool is locked."""

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import leases, node_pools
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.decision import Action
from control_plane.domain.ids import LeaseId
from control_plane.domain.lease import Lease, LeaseEvent
from control_plane.domain.node_pool import NodePool, NodePoolEvent, step
from control_plane.domain.refusal import Refused
from control_plane.domain.request import LeaseTerms
from control_plane.domain.transitions import Moved
from control_plane.outcomes import lease_orders
from control_plane.outcomes.lease_orders import LeaseOrder, LeasePlace, OfPool
from control_plane.outcomes.leases import end_all


def place_of(pool: NodePool) -> LeasePlace:
    return LeasePlace(
        pool.organization_id, pool.project_id, pool.project, pool.environment_id, pool.environment
    )


async def lease(
    connection: Connection,
    pool: NodePool,
    count: int,
    action: Action,
    new_id: Callable[[], UUID],
    *,
    actor: Actor,
    now: datetime,
) -> Sequence[Lease] | Refused:
    """Create the leases of so many nodes by one decision, all or none; NotAdmitted when it refuses them."""
    order = LeaseOrder(
        place_of(pool),
        pool.request,
        LeaseTerms(wait_timeout_seconds=pool.lease_wait_seconds),
        [None] * count,
        action,
        keys=(),
        pool=OfPool(pool.id, pool.name, pool.cluster),
    )
    return await lease_orders.create(connection, order, new_id, actor=actor, now=now)


async def release(
    connection: Connection, lease_ids: Sequence[LeaseId], *, why: str, actor: Actor, now: datetime
) -> frozenset[LeaseId]:
    """End leases of nodes that are not wanted any more; returns those that were not ending already."""
    found = await leases.lock(connection, lease_ids)
    return await end_all(connection, list(found.values()), LeaseEvent.RELEASED, why=why, actor=actor, now=now)


async def delete(
    connection: Connection,
    pool: NodePool,
    event: NodePoolEvent,
    *,
    why: str,
    actor: Actor,
    now: datetime,
) -> bool:
    """End a pool with all of its leases. False when it is ending already."""
    moved = step(pool.state, event)
    if not isinstance(moved, Moved) or not await node_pools.move(connection, pool, moved, now=now, why=why):
        return False
    members = await node_pools.members(connection, pool.id)
    found = await leases.lock(connection, [member.lease_id for member in members])
    gave_up = event is NodePoolEvent.GAVE_UP
    await end_all(
        connection,
        list(found.values()),
        LeaseEvent.GAVE_UP if gave_up else LeaseEvent.RELEASED,
        why=f"the node pool {pool.name} was {'given up' if gave_up else 'deleted'}: {why}",
        actor=actor,
        now=now,
    )
    return True
