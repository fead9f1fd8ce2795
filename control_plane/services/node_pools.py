"""Node pools for customers: create, scale, delete, list. Operators list those of everybody.

Each change is one transaction, which admits and stores all new leases or none.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from control_plane.db import node_pools, scaled_pools
from control_plane.db.connection import Connection
from control_plane.db.node_pools import Counts, PoolOverview, PoolReport
from control_plane.domain.access import Reach
from control_plane.domain.actor import Actor
from control_plane.domain.cluster import Cluster, ClusterState
from control_plane.domain.decision import Action, NotAdmitted
from control_plane.domain.ids import NodePoolId, OrganizationId, ProjectId
from control_plane.domain.node_marks import Taint, label_problem, taint_problem
from control_plane.domain.node_pool import (
    WANTED,
    NodePool,
    NodePoolEvent,
    NodePoolState,
    missing,
    to_release_when_scaled,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import WAIT_SECONDS_DEFAULT, CapacityRequest
from control_plane.outcomes import node_pools as outcomes
from control_plane.services import admissions, clusters, leases, projects
from control_plane.services.places import Place, place_of
from control_plane.world import World

__all__ = [
    "Counts",
    "PoolOverview",
    "PoolReport",
]  # For controllers and views, which must not import the layer below.

NOT_FOUND = Refused(RefusalCode.NOT_FOUND, "There is no such node pool.")


@dataclass(frozen=True, slots=True)
class WantedPool:
    """A node pool as somebody asks for it. None of a name means the default one."""

    cluster: str
    """The name or the id of a cluster that the organization may use."""
    name: str
    request: CapacityRequest
    nodes: int
    project: str | None = None
    environment: str | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    node_taints: tuple[Taint, ...] = ()
    wait_timeout_seconds: int = WAIT_SECONDS_DEFAULT


@dataclass(frozen=True, slots=True)
class Asker:
    """Who changes node pools: for which organization, and within which reach."""

    organization_id: OrganizationId
    actor: Actor
    reach: Reach


async def create(
    connection: Connection, world: World, asker: Asker, wanted: WantedPool
) -> PoolOverview | Refused:
    """Store a pool with the leases of all of its nodes. A refusal has to roll the caller's transaction back."""
    refused = _marks_refused(wanted)
    if refused is not None:
        return refused
    place = await place_of(
        connection, asker.organization_id, wanted.project, wanted.environment, reach=asker.reach
    )
    if isinstance(place, Refused):
        return place
    cluster = await _cluster(connection, asker.organization_id, wanted.cluster)
    if isinstance(cluster, Refused):
        return cluster
    pool = _pool(NodePoolId(world.new_id()), place, cluster, wanted, now=world.now())
    if not await node_pools.insert(connection, pool):
        why = (
            f"The project {pool.project!r} has a node pool {pool.name!r} in the cluster {pool.cluster!r} already;"
            " choose another name."
        )
        return Refused(RefusalCode.NAME_TAKEN, why)
    refused = await _lease(connection, world, pool, pool.nodes, Action.NODE_POOL_CREATE, actor=asker.actor)
    return refused or await _shown(connection, pool.id, asker)


def _marks_refused(wanted: WantedPool) -> Refused | None:
    problem = label_problem(wanted.node_labels)
    if problem is not None:
        return Refused(RefusalCode.NODE_LABEL_INVALID, problem)
    problem = taint_problem(wanted.node_taints)
    return None if problem is None else Refused(RefusalCode.NODE_TAINT_INVALID, problem)


async def _cluster(connection: Connection, organization_id: OrganizationId, word: str) -> Cluster | Refused:
    """The ready cluster of a new pool."""
    found = await clusters.chosen(connection, organization_id, word)
    if isinstance(found, Refused):
        return found
    if found.state is not ClusterState.READY:
        why = f"The cluster {found.name!r} is {found.state}, and nodes join only a ready one."
        return Refused(RefusalCode.CLUSTER_NOT_READY, why)
    return found


def _pool(
    pool_id: NodePoolId, place: Place, cluster: Cluster, wanted: WantedPool, *, now: datetime
) -> NodePool:
    return NodePool(
        id=pool_id,
        organization_id=place.project.organization_id,
        project_id=place.project.id,
        project=place.project.name,
        environment_id=place.environment.id,
        environment=place.environment.name,
        cluster_id=cluster.id,
        cluster=cluster.name,
        name=wanted.name,
        request=wanted.request,
        nodes=wanted.nodes,
        node_labels=wanted.node_labels,
        node_taints=wanted.node_taints,
        wait_timeout_seconds=wanted.wait_timeout_seconds,
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


async def _lease(
    connection: Connection, world: World, pool: NodePool, count: int, action: Action, *, actor: Actor
) -> Refused | None:
    """Create the leases of so many nodes, all or none."""
    made = await outcomes.lease(connection, pool, count, action, world.new_id, actor=actor, now=world.now())
    if isinstance(made, NotAdmitted):
        return admissions.refused(made, outcomes.place_of(pool).about)
    if isinstance(made, Refused):
        return made
    for lease in made:
        await leases.follow(connection, world, lease.id)
    return None


async def scale(
    connection: Connection, world: World, asker: Asker, pool_id: NodePoolId, nodes: int
) -> PoolOverview | Refused:
    """Let a pool have another number of nodes. What is more is admitted, and what is less stops being billed, now."""
    pool = await _locked(connection, pool_id, asker)
    if isinstance(pool, Refused):
        return pool
    if pool.state not in WANTED:
        return Refused(RefusalCode.NODE_POOL_DELETING, f"The node pool {pool.name!r} is {pool.state}.")
    if await scaled_pools.of_pools(connection, [pool.id]):
        why = f"The number of nodes of {pool.name!r} follows its NodePool in the cluster {pool.cluster!r}."
        return Refused(RefusalCode.NODE_POOL_FOLLOWS_OBJECT, why)
    if nodes != pool.nodes:
        await node_pools.resize(connection, pool_id, nodes)
        refused = await _resized(connection, world, replace(pool, nodes=nodes), pool.nodes, asker.actor)
        if refused is not None:
            return refused
    return await _shown(connection, pool_id, asker)


async def _resized(
    connection: Connection, world: World, pool: NodePool, before: int, actor: Actor
) -> Refused | None:
    members = await node_pools.members(connection, pool.id)
    if pool.nodes > before:
        count = missing(pool.nodes, members)
        return (
            await _lease(connection, world, pool, count, Action.NODE_POOL_SCALE, actor=actor)
            if count
            else None
        )
    why = f"the node pool {pool.name} was scaled to {pool.nodes} node{'' if pool.nodes == 1 else 's'}"
    ending = to_release_when_scaled(pool.nodes, members)
    await outcomes.release(connection, ending, why=why, actor=actor, now=world.now())
    return None


async def delete(
    connection: Connection, world: World, asker: Asker, pool_id: NodePoolId
) -> PoolOverview | Refused:
    """Delete a pool: all of its leases end now, and its nodes leave the cluster. Repeating it changes nothing."""
    pool = await _locked(connection, pool_id, asker)
    if isinstance(pool, Refused):
        return pool
    why, actor = "its customer deleted it", asker.actor
    await outcomes.delete(connection, pool, NodePoolEvent.DELETED, why=why, actor=actor, now=world.now())
    return await _shown(connection, pool_id, asker)


async def _locked(connection: Connection, pool_id: NodePoolId, asker: Asker) -> NodePool | Refused:
    pool = await node_pools.lock(connection, pool_id)
    if pool is None or pool.organization_id != asker.organization_id or not asker.reach.contains(pool.scope):
        return NOT_FOUND
    return pool


async def _shown(connection: Connection, pool_id: NodePoolId, asker: Asker) -> PoolOverview:
    found = await node_pools.show(connection, asker.organization_id, pool_id, reach=asker.reach)
    if found is None:
        raise LookupError(f"node pool {pool_id} vanished while it was locked")
    return found


async def show(
    world: World, organization_id: OrganizationId, pool_id: NodePoolId, *, reach: Reach
) -> PoolOverview | Refused:
    async with world.db.reading(organization_id) as connection:
        return await node_pools.show(connection, organization_id, pool_id, reach=reach) or NOT_FOUND


@dataclass(frozen=True, slots=True)
class PoolFilter:
    """Which pools are wanted; None is every one."""

    states: Sequence[NodePoolState] | None = None
    project: str | None = None
    cluster: str | None = None
    name: str | None = None


async def page(
    world: World,
    organization_id: OrganizationId,
    only: PoolFilter,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
    reach: Reach,
) -> Sequence[PoolOverview] | Refused:
    """The pools of an organization within reach, newest first."""
    async with world.db.reading(organization_id) as connection:
        project_id: ProjectId | None = None
        if only.project is not None:
            project = await projects.named(connection, organization_id, only.project, reach=reach)
            if isinstance(project, Refused):
                return project
            project_id = project.id
        cluster_id = await clusters.filtered_by(connection, organization_id, only.cluster)
        if isinstance(cluster_id, Refused):
            return cluster_id
        return await node_pools.page(
            connection,
            organization_id,
            reach=reach,
            before=before,
            states=only.states,
            project_id=project_id,
            cluster_id=cluster_id,
            name=only.name,
            limit=limit,
        )


async def reports(
    world: World,
    platform: OrganizationId,
    only: PoolFilter,
    *,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[PoolReport] | Refused:
    """The pools of everybody in these states and in this cluster, newest first, as operators see them.

    `platform` is their organization. Each pool is read as its own tenant.
    """
    async with world.db.reading(platform) as connection:
        cluster_id = await clusters.filtered_by(connection, platform, only.cluster)
        if isinstance(cluster_id, Refused):
            return cluster_id
        places = await node_pools.whose(
            connection, cluster_id=cluster_id, states=only.states, before=before, limit=limit
        )
    by_tenant: dict[OrganizationId, list[NodePoolId]] = defaultdict(list)
    for place in places:
        by_tenant[place.organization_id].append(place.id)
    found: list[PoolReport] = []
    for tenant, ids in by_tenant.items():
        async with world.db.reading(tenant) as connection:
            found += await node_pools.reports(connection, ids)
    return sorted(
        found, key=lambda each: (each.overview.pool.created_at, each.overview.pool.id), reverse=True
    )
