"""How node pools follow the NodePool objects of a cluster, on an open connection.

An object never spends by itself: each node is a lease that is admitted like any other, with the organization's
envelopes, quota and balance. A change is made to the pool that was looked at, or not at all: whoever changed its number
of nodes since then has changed its generation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import environments, node_pools, organizations, projects, scaled_pools
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.cluster import Cluster
from control_plane.domain.decision import Action
from control_plane.domain.environment import Environment
from control_plane.domain.ids import LeaseId, NodePoolId, OrganizationId, ProjectId, ScaledPoolId
from control_plane.domain.money import Nano
from control_plane.domain.node_pool import NodePool, NodePoolEvent, NodePoolState, step
from control_plane.domain.organization import OrganizationState
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.domain.request import WAIT_SECONDS_DEFAULT
from control_plane.domain.scaled_pool import NodePoolWish, ScaledPool
from control_plane.domain.transitions import Moved
from control_plane.outcomes import node_pools as outcomes
from control_plane.outcomes.market import market_of


@dataclass(frozen=True, slots=True)
class Namespace:
    """Where an object is: the namespace of a project in a cluster."""

    organization_id: OrganizationId
    project_id: ProjectId
    cluster: Cluster


async def accept(
    connection: Connection,
    place: Namespace,
    wish: NodePoolWish,
    new_id: Callable[[], UUID],
    *,
    now: datetime,
) -> NodePool | Refused:
    """Give a NodePool object a node pool, which is ready and has no nodes yet."""
    organization = await organizations.get(connection, place.organization_id)
    if organization is None or organization.state is not OrganizationState.ACTIVE:
        return Refused(
            RefusalCode.ORGANIZATION_SUSPENDED,
            "The organization is suspended or closed, so it gets no node pool.",
        )
    environment = await _environment(connection, place, wish.environment)
    if isinstance(environment, Refused):
        return environment
    market = await market_of(connection, place.organization_id, wish.request, now)
    if market.price is None:
        why = f"The SKU {wish.request.sku!r} is not sold; {choose(wish.request.sku, list(market.sold))}."
        return Refused(RefusalCode.SKU_UNKNOWN, why)
    if market.unserved is not None:
        return market.unserved
    pool = await _new_pool(connection, place, wish, environment, NodePoolId(new_id()), now=now)
    opened = step(pool.state, NodePoolEvent.OPENED)  # It has all of its nodes, which are none.
    if not await node_pools.insert(connection, pool):
        why = (
            f"The project has a node pool {wish.name!r} in this cluster that this object did not make; delete that"
            " one, or choose another name."
        )
        return Refused(RefusalCode.NAME_TAKEN, why)
    if not isinstance(opened, Moved) or not await node_pools.move(connection, pool, opened, now=now):
        raise LookupError(f"{pool.name} was changed while it was made")
    await scaled_pools.follow(connection, ScaledPoolId(new_id()), pool, wish.uid, now=now)
    stored = await node_pools.get(connection, pool.id)
    if stored is None:
        raise LookupError(f"there is no node pool {pool.id}")
    return stored


async def _environment(connection: Connection, place: Namespace, name: str | None) -> Environment | Refused:
    if name is None:
        return await environments.default(connection, place.organization_id, place.project_id)
    found = await environments.named(connection, place.organization_id, place.project_id, name)
    if found is None:
        return Refused(RefusalCode.ENVIRONMENT_UNKNOWN, f"The project has no environment {name!r}.")
    return found


async def _new_pool(
    connection: Connection,
    place: Namespace,
    wish: NodePoolWish,
    environment: Environment,
    pool_id: NodePoolId,
    *,
    now: datetime,
) -> NodePool:
    project = await projects.get(connection, place.organization_id, place.project_id)
    if project is None:
        raise LookupError(f"there is no project {place.project_id}")
    return NodePool(
        id=pool_id,
        organization_id=place.organization_id,
        project_id=place.project_id,
        project=project.name,
        environment_id=environment.id,
        environment=environment.name,
        cluster_id=place.cluster.id,
        cluster=place.cluster.name,
        name=wish.name,
        request=wish.request,
        nodes=0,
        node_labels=wish.labels,
        node_taints=wish.taints,
        wait_timeout_seconds=WAIT_SECONDS_DEFAULT,
        state=NodePoolState.PENDING,
        generation=1,
        due_at=now,
        waiting_since=None,
        waiting_code=None,
        waiting_why=None,
        why=None,
        created_at=now,
        ready_at=None,
        gone_at=None,
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """How many nodes a pool is to get, and why."""

    pool: NodePool
    """As it was looked at."""
    count: int
    nano_per_hour: Nano | None
    """What one of them may cost at most, because the budget was computed with it; None without a budget."""
    why: str


async def grow(
    connection: Connection,
    scaled: ScaledPool,
    growth: Growth,
    new_id: Callable[[], UUID],
    *,
    actor: Actor,
    now: datetime,
) -> int:
    """Order nodes one by one, until one is refused; returns how many. Zero also when the pool is another one by now."""
    pool = await _unchanged(connection, growth.pool)
    if pool is None:
        return 0
    pace = await scaled_pools.pace(connection, pool.organization_id, now=now)
    if (refused_for_now := pace.no_more_nodes()) is not None:
        code, why = refused_for_now
        await scaled_pools.refused(connection, scaled.id, code=code, why=f"{why}.", now=now)
        return 0
    made = 0
    refused: Refused | None = None
    while made < growth.count and refused is None:
        leases = await outcomes.lease(
            connection, pool, 1, Action.NODE_POOL_SCALE, new_id, actor=actor, now=now
        )
        if isinstance(leases, Refused):
            refused = leases
            continue
        made += 1
        if growth.nano_per_hour is not None and any(
            lease.nano_per_unit_hour * lease.units > growth.nano_per_hour for lease in leases
        ):
            raise PriceRoseError(f"a node of {pool.name} costs more than a moment ago")
    if made:
        await node_pools.resize(connection, pool.id, pool.nodes + made)
        await scaled_pools.scaled(connection, scaled.id, growth.why, now=now)
    if refused is not None:
        await scaled_pools.refused(connection, scaled.id, code=refused.code, why=refused.why, now=now)
    return made


class PriceRoseError(Exception):
    """A node costs more than when the budget was looked at. Nothing is ordered, and the next look computes anew."""


async def shrink(
    connection: Connection,
    scaled: ScaledPool,
    seen: NodePool,
    lease_ids: Sequence[LeaseId],
    *,
    unleased: int = 0,
    why: str,
    actor: Actor,
    now: datetime,
) -> bool:
    """End these leases, and want so many nodes fewer. False when the pool is another one by now.

    `unleased`: nodes fewer that have no lease at present.
    """
    pool = await _unchanged(connection, seen)
    if pool is None:
        return False
    await node_pools.resize(connection, pool.id, max(0, pool.nodes - len(lease_ids) - unleased))
    await outcomes.release(connection, lease_ids, why=why, actor=actor, now=now)
    await scaled_pools.scaled(connection, scaled.id, why, now=now)
    return True


async def _unchanged(connection: Connection, seen: NodePool) -> NodePool | None:
    """The pool, locked, unless somebody moved or resized it since it was looked at."""
    pool = await node_pools.lock(connection, seen.id)
    if pool is None or pool.state is not NodePoolState.READY or pool.generation != seen.generation:
        return None
    return pool
