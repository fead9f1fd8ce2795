"""Brings node pools to what NodePool and ScalingPolicy objects in their clusters ask for, and fills in their status.

Objects are wishes of customers of a cluster. What comes of one is a node pool with the same name, and from then on the
rows alone say which nodes there are: `domain/scaling.py` decides how many more pods need, and which are needed no more,
and `outcomes/scaled_pools.py` has each node admitted like any other lease. A cluster that does not answer, or that
answers in part, changes nothing.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from control_plane.db import clusters, node_pools, scaled_pools
from control_plane.db.scaled_pools import TenantRow
from control_plane.domain.backoff import delay
from control_plane.domain.cluster import Cluster, ClusterState
from control_plane.domain.node_pool import NodePoolState as PoolState
from control_plane.domain.node_pool import to_release
from control_plane.domain.period import month_of
from control_plane.domain.scaled_pool import (
    Deciding,
    NodePoolWish,
    PolicyWish,
    continued,
    deciding,
)
from control_plane.domain.scaling import (
    VAIN_FOR,
    Plan,
    known_empty,
)
from control_plane.outcomes import scaled_pools as outcomes
from control_plane.outcomes.scaled_pools import Growth, Namespace, PriceRoseError
from data_plane.cluster.objects.scaling import CONSOLIDATING
from data_plane.cluster.port import KubernetesPort, NotFound
from data_plane.cluster.resource import NODE, NODE_POOL, POD, SCALING_POLICY, Object
from data_plane.cluster.tenant import define_scaling
from reconciler import scaling_watch
from reconciler.cluster_tenants import tenant_of
from reconciler.loop import Loop, Report, each
from reconciler.nodes import OURS
from reconciler.renewal import renewed
from reconciler.scaled_objects import Due, Project, answers, follow_all, rows_of
from reconciler.scaling_look import (
    Inside,
    Stored,
    inside,
    seen_room,
    stored,
)
from reconciler.scaling_objects import (
    is_consolidating,
    policy_wish,
    use_of_nodes,
)
from reconciler.scaling_plan import (
    BY_OBJECTS,
    MISSING,
    Planned,
    bounds_of,
    group_of,
    known_of,
    plans_of,
    spent_by,
)
from reconciler.scaling_status import PolicyFacts, Told, conditions_of_pool, tell_node_pool, tell_policy
from reconciler.server_hosts import connected
from reconciler.worlds.clusters import ClusterWorld

NAME = "scale_clusters"
CLUSTERS_PER_ACTIVATION_MAX = 8
HELD_FOR = timedelta(minutes=1)
"""How long a cluster waits when the process of its worker is gone."""
LASTS = timedelta(minutes=5)
"""Of an activation: clusters with many projects, slowly answered."""
PROJECT_SECONDS_MAX = 20.0
"""How long a look at a project may take, so that what one stores in a cluster does not keep the others waiting."""
CLUSTER_SECONDS_MAX = 60.0
"""After so long, the projects of a cluster that are left wait for its next look. Two looks at empty nodes of other
clusters must not be further apart than `LOOKED_WITHIN`.
"""
AGAIN = timedelta(seconds=10)
"""How long what somebody wrote there may wait where nobody watches, and how far apart looks at clusters are in which
nodes are scaled: much of what they decide follows from the time."""
AGAIN_IDLE = timedelta(seconds=60)
"""How far apart looks are at a cluster that is watched and has no object of ours: a watch may miss something."""
SPENT_AGAIN = timedelta(minutes=1)
"""How often it is summed up what pools with a budget per month were charged."""
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=10), timedelta(minutes=5)


async def activate(world: ClusterWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        ids = await scaled_pools.take_turns(
            connection, token=token, now=now, until=now + HELD_FOR, limit=CLUSTERS_PER_ACTIVATION_MAX
        )
        found = [await clusters.get(connection, each_id) for each_id in ids]
    due = [cluster for cluster in found if cluster is not None]
    report = Report(looked_at=len(due), more=len(due) == CLUSTERS_PER_ACTIVATION_MAX)

    async def renew() -> bool:
        async with world.db.statement() as connection:
            return await scaled_pools.renew_turns(connection, ids, token=token, until=world.now() + HELD_FOR)

    async with renewed(renew, world.sleep):
        await each(due, partial(_scale, world, token, report), report)
    return report


async def _scale(world: ClusterWorld, token: UUID, report: Report, cluster: Cluster) -> None:
    began_at = world.now()
    due: Due | None = None
    try:
        if cluster.state is ClusterState.READY:
            async with connected(world, cluster) as port:
                due = await _scale_projects(world, port, cluster, report)
    except OURS as error:
        report.errors.append(f"{cluster.name}: {type(error).__name__}: {error}")
        await _fail(world, cluster, token)
        return
    now = world.now()
    due_at = now + AGAIN if due is None or due.at is None else min(now + AGAIN, due.at)
    watched_at = now + AGAIN_IDLE if due is None else due_at
    looked = scaled_pools.Looked(began_at, now, due_at, watched_at)
    async with world.db.statement() as connection:
        await scaled_pools.end_turn(connection, cluster.id, looked, token=token)


async def _fail(world: ClusterWorld, cluster: Cluster, token: UUID) -> None:
    now = world.now()
    async with world.db.transaction() as connection:
        tries = await scaled_pools.tries(connection, cluster.id)
        due_at = now + delay(tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
        await scaled_pools.fail_turn(connection, cluster.id, token=token, now=now, due_at=due_at)


@dataclass(frozen=True, slots=True)
class _Refused:
    """Which objects are not followed, and why, by their names."""

    pools: Mapping[str, Told]
    policies: Mapping[str, str]


async def _scale_projects(
    world: ClusterWorld, port: KubernetesPort, cluster: Cluster, report: Report
) -> Due | None:
    """When the next look is due by what was found; None when there is nothing to scale."""
    async with world.db.reading() as connection:
        tenants = await scaled_pools.tenants(connection, cluster.id)
        rows = await scaled_pools.of_cluster(connection, cluster.id)
    try:
        pools, policies = await port.list(NODE_POOL), await port.list(SCALING_POLICY)
    except NotFound:
        if rows:  # They were there: something of the cluster is missing, and that says nothing about pools.
            raise
        await define_scaling(port)
        return None
    with_rows = {row.project_id for row in rows}
    began = asyncio.get_running_loop().time()
    due, is_busy = Due(), False
    for found in _in_turn(tenants, world.now()):
        if asyncio.get_running_loop().time() - began > CLUSTER_SECONDS_MAX:
            report.notes.append(f"{cluster.name}: the look took too long, and the next one goes on")
            return due
        tenant = tenant_of(found.organization_id, found.project_id)
        mine = partial(_in_namespace, tenant.namespace)
        project = Project(
            world,
            port,
            Namespace(found.organization_id, found.project_id, cluster),
            tenant,
            mine(pools),
            mine(policies),
            world.actor(NAME),
            report,
            due,
        )
        if project.pools or project.policies or found.project_id in with_rows:
            is_busy = True
            await _scale_project(project)
    return due if is_busy else None


def _in_turn(tenants: Sequence[TenantRow], now: datetime) -> Sequence[TenantRow]:
    """Each look begins with another project, so that slow ones do not always come before the same others."""
    first = int(now.timestamp() / AGAIN.total_seconds()) % max(1, len(tenants))
    return [*tenants[first:], *tenants[:first]]


def _in_namespace(namespace: str, things: Sequence[Object]) -> list[Object]:
    found = [thing for thing in things if thing["metadata"].get("namespace") == namespace]
    return sorted(found, key=lambda thing: str(thing["metadata"]["name"]))


async def _scale_project(project: Project) -> None:
    """One project. What cannot be done for it holds up no other one, unless the cluster is away."""
    try:
        async with asyncio.timeout(PROJECT_SECONDS_MAX):
            await _look(project)
    except Exception as error:
        if isinstance(error, OURS) and not await answers(project):
            raise
        project.report.errors.append(f"{project.tenant.project}: {type(error).__name__}: {error}")


async def _look(project: Project) -> None:
    wishes, told = await follow_all(project)
    policies, unreadable = _policies(project)
    decided = deciding(policies)
    await _look_at_spent(project, decided)
    entries = await _stored(project)
    cluster = await inside(project.port, project.tenant) if entries else Inside()
    _soon(project, policies, cluster)
    # A second of computing, for a large cluster, must not keep all other loops waiting.
    planned = await asyncio.to_thread(
        plans_of, project.tenant, entries, decided, cluster, project.world.now()
    )
    await _act(project, planned, wishes, cluster)
    refused = _Refused(told, {**decided.taken, **unreadable})
    await _keep(project, planned, decided, cluster, refused)


def _soon(project: Project, policies: Sequence[PolicyWish], cluster: Inside) -> None:
    """The next look is due when the first of the pods that have just come has waited for long enough."""
    after = min((wish.policy.scale_up_after for wish in policies), default=None)
    now = project.world.now()
    for pod in cluster.pending:
        if after is not None and pod.pending_since + after > now:
            project.due.by(pod.pending_since + after)


def _policies(project: Project) -> tuple[list[PolicyWish], dict[str, str]]:
    """The policies, and why others cannot be read. Those that are being deleted decide nothing."""
    found: list[PolicyWish] = []
    unreadable: dict[str, str] = {}
    for thing in project.policies:
        if "deletionTimestamp" in thing["metadata"]:
            continue
        try:
            found.append(policy_wish(thing))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            unreadable[str(thing["metadata"]["name"])] = f"the object cannot be read: {error}"
    return found, unreadable


async def _look_at_spent(project: Project, decided: Deciding) -> None:
    """What pools with a budget per month were charged, now and then: usage is rated every few minutes at most."""
    now = project.world.now()
    async with project.world.db.reading() as connection:
        rows = await rows_of(connection, project)
    due = [
        row.id
        for row in rows
        if row.name in decided.of_pool
        and decided.of_pool[row.name][0].policy.nano_per_month_max is not None
        and (row.spent_at is None or now - row.spent_at >= SPENT_AGAIN or row.spent_at < month_of(now))
    ]
    if due:
        async with project.world.db.transaction() as connection:
            await scaled_pools.look_at_spent(connection, due, now=now)


async def _stored(project: Project) -> list[Stored]:
    async with project.world.db.reading() as connection:
        entries = await stored(connection, await rows_of(connection, project), project.world.now())
    return [entry for entry in entries if entry.pool.state is PoolState.READY]


# What is done about them


async def _act(
    project: Project, planned: Sequence[Planned], wishes: Mapping[str, NodePoolWish], cluster: Inside
) -> None:
    ended: set[str] = set()
    for part in planned:
        for entry in part.entries:
            wish = wishes.get(entry.pool.name)
            count = part.plan.grow.get(entry.pool.name, 0)
            wanted = wish.nodes - entry.pool.nodes if part.group == BY_OBJECTS and wish is not None else count
            if entry.row.refused_at is not None and entry.keeps is None and wanted <= 0:
                async with project.world.db.transaction() as connection:
                    await scaled_pools.nothing_refused(connection, entry.row.id)
            if part.group == BY_OBJECTS and wish is not None:
                await _resize(project, entry, wish.nodes)
            if count:
                why = f"the ScalingPolicy {part.group} ordered {_nodes(count)}, for pods that wait or for its minimum"
                await _grow(project, entry, count, why)
            ended |= await _consolidate(project, entry, frozenset(part.plan.end))
    await _uncordon(project, cluster, ended)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


async def _resize(project: Project, entry: Stored, nodes: int) -> None:
    """What the object itself says. Fewer nodes go as they do when somebody scales a pool in the API."""
    if nodes > entry.pool.nodes and entry.keeps is None:
        await _grow(project, entry, nodes - entry.pool.nodes, f"its NodePool says {_nodes(nodes)}")
    elif nodes < entry.pool.nodes:
        world = project.world
        async with world.db.transaction() as connection:
            members = await node_pools.members(connection, entry.pool.id)
            ending = to_release(nodes, members)
            unleased = entry.pool.nodes - nodes - len(ending)
            why, now = f"its NodePool says {_nodes(nodes)}", world.now()
            done = await outcomes.shrink(
                connection,
                entry.row,
                entry.pool,
                ending,
                unleased=unleased,
                why=why,
                actor=project.actor,
                now=now,
            )
        project.report.count(int(done))


async def _grow(project: Project, entry: Stored, count: int, why: str) -> None:
    world = project.world
    growth = Growth(entry.pool, count, entry.nano_per_hour, why)
    try:
        async with world.db.transaction() as connection:
            made = await outcomes.grow(
                connection, entry.row, growth, world.new_id, actor=project.actor, now=world.now()
            )
    except PriceRoseError as error:
        project.report.notes.append(str(error))
        return
    project.report.count(made)


async def _consolidate(project: Project, entry: Stored, keys: frozenset[str]) -> frozenset[str]:
    """Have empty nodes leave. Returns the names of those that do."""
    unleased = sum(key.startswith(f"{entry.pool.name}#") for key in keys)
    ending = [node for node in entry.nodes if str(node.lease_id) in keys]
    empty = [node for node in ending if node.node is None or await _is_empty(project, node.node)]
    if not empty and not unleased:
        return frozenset()
    world = project.world
    async with world.db.transaction() as connection:
        done = await outcomes.shrink(
            connection,
            entry.row,
            entry.pool,
            [node.lease_id for node in empty],
            unleased=unleased,
            why=f"{_nodes(len(empty) + unleased)} had no pods, and none needed them",
            actor=project.actor,
            now=world.now(),
        )
    project.report.count(int(done))
    return frozenset(node.node for node in empty if node.node is not None) if done else frozenset()


async def _is_empty(project: Project, node: str) -> bool:
    """Keep new pods away, and look again: one may have landed there since the plan was made."""
    port = project.port
    mark = {"metadata": {"annotations": {CONSOLIDATING: "true"}}, "spec": {"unschedulable": True}}
    try:
        await port.patch(NODE, node, mark)
    except NotFound:
        return True
    project.cordoned.add(node)
    use = use_of_nodes(await port.list(POD, fields={"spec.nodeName": node})).get(node)
    return use is None or not use.has_work


async def _uncordon(project: Project, cluster: Inside, ended: Collection[str]) -> None:
    """Nodes that were about to leave and do not: a pod landed there at the last moment, or a worker died in between."""
    cordoned = {name for name, thing in cluster.nodes.items() if is_consolidating(thing)} | project.cordoned
    if not cordoned:
        return
    async with project.world.db.reading() as connection:
        entries = await stored(connection, await rows_of(connection, project), project.world.now())
    live = {node.node for entry in entries for node in entry.nodes}
    for name in sorted(cordoned & live - set(ended)):
        undo = {"metadata": {"annotations": {CONSOLIDATING: None}}, "spec": {"unschedulable": None}}
        with suppress(NotFound):
            await project.port.patch(NODE, name, undo)


# What is kept and told


async def _keep(
    project: Project,
    planned: Sequence[Planned],
    decided: Deciding,
    cluster: Inside,
    refused: _Refused,
) -> None:
    now = project.world.now()
    plans = {part.group: part.plan for part in planned}
    seen = _Seen(
        frozenset(key for part in planned for key in part.plan.empty),
        {pod: pool for part in planned for pod, pool in part.plan.vain.items()},
    )
    async with project.world.db.transaction() as connection:
        entries = await stored(connection, await rows_of(connection, project), now)
        kept = [_looked_at(entry, decided, cluster, seen, now) for entry in entries]
        for entry in kept:
            await scaled_pools.keep(connection, entry.row)
    by_name = {entry.pool.name: entry for entry in kept}
    for thing in project.pools:
        name = str(thing["metadata"]["name"])
        await tell_node_pool(project.port, thing, by_name.get(name), refused.pools.get(name), now)
    monthly = {
        wish.name for wish, _ in decided.of_pool.values() if wish.policy.nano_per_month_max is not None
    }
    fits_somewhere = frozenset(pod for each_plan in plans.values() for pod in each_plan.placed)
    for thing in project.policies:
        name = str(thing["metadata"]["name"])
        mine = [entry for entry in kept if entry.row.policy == name]
        made = plans.get(name, Plan())
        unplaced = {pod: why for pod, why in made.unplaced.items() if pod not in fits_somewhere}
        facts = PolicyFacts(
            mine,
            [bounds.name for wish, bounds in decided.of_pool.values() if wish.name == name],
            replace(made, unplaced=unplaced),
            len(cluster.pending),
            refused.policies.get(name),
            spent_by(mine, now) if name in monthly else None,
        )
        await tell_policy(project.port, thing, facts, now)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the plans of a look found besides what is to be done."""

    empty: frozenset[str]
    """The keys of empty nodes."""
    vain: Mapping[str, str]
    """Pods for which nodes were bought in vain, with the pools of these."""


VAIN_PODS_MAX = 100
"""Of a pool that are remembered."""


def _in_vain(entry: Stored, seen: _Seen, now: datetime) -> dict[str, datetime]:
    before = {pod: until for pod, until in entry.row.vain.items() if until > now}
    found = {pod: now + VAIN_FOR for pod, pool in sorted(seen.vain.items()) if pool == entry.pool.name}
    return dict([*before.items(), *found.items()][:VAIN_PODS_MAX])


def _looked_at(entry: Stored, decided: Deciding, cluster: Inside, seen: _Seen, now: datetime) -> Stored:
    """What is stored of this look."""
    row = entry.row
    mine = {str(node.lease_id) for node in entry.nodes} | {
        f"{entry.pool.name}#{number}" for number in range(len(entry.nodes), entry.pool.nodes)
    }
    group = group_of(entry, decided)
    low, high = bounds_of(entry, decided)
    found = replace(
        row,
        policy=None if group in (BY_OBJECTS, MISSING) else group,
        nodes_min=low,
        nodes_max=high,
        room=seen_room(entry, cluster),
        empty_since=known_empty(mine & seen.empty, known_of(entry, now), now),
        looked_at=now,
        vain=_in_vain(entry, seen, now),
    )
    return replace(
        entry, row=replace(found, conditions=continued(row.conditions, conditions_of_pool(entry, now)))
    )


LOOP = Loop(
    NAME,
    timedelta(seconds=2),
    activate,
    wakes=("place_leases", "release_machines"),
    lasts=LASTS,
    beside=scaling_watch.keep,
)
