"""NodePool objects of a project and the node pools that follow them: how one comes of the other, and ends with it.

A NodePool that somebody deletes takes its nodes with it. One that is gone although nobody was seen deleting it, as
after a restore of the cluster's database, loses nodes only when they are empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from control_plane.db import node_pools, scaled_pools
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor
from control_plane.domain.node_pool import WANTED, NodePool, NodePoolEvent
from control_plane.domain.node_pool import NodePoolState as PoolState
from control_plane.domain.refusal import Refused
from control_plane.domain.scaled_pool import MISSING_EMPTY_FOR, NodePoolWish, ScaledPool, ended_reason
from control_plane.outcomes import node_pools as pool_outcomes
from control_plane.outcomes import scaled_pools as outcomes
from control_plane.outcomes.scaled_pools import Namespace
from data_plane.cluster.objects.scaling import FINALIZER
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import Conflict, KubernetesPort, NotFound
from data_plane.cluster.resource import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, NODE_POOL, Object
from reconciler.loop import Report
from reconciler.nodes import OURS
from reconciler.scaling_objects import UnreadableObjectError, node_pool_wish
from reconciler.scaling_status import Told
from reconciler.worlds.clusters import ClusterWorld

DEFINITION = f"{NODE_POOL.plural}.{NODE_POOL.group}"


@dataclass
class Due:
    """When the next look at a cluster is due, by what was found there."""

    at: datetime | None = None

    def by(self, moment: datetime) -> None:
        self.at = moment if self.at is None else min(self.at, moment)


@dataclass(frozen=True, slots=True)
class Project:
    """What a project has in a cluster, as far as scaling goes."""

    world: ClusterWorld
    port: KubernetesPort
    place: Namespace
    tenant: Tenant
    pools: Sequence[Object]
    policies: Sequence[Object]
    actor: Actor
    report: Report
    due: Due
    cordoned: set[str] = field(default_factory=set[str])
    """Nodes that were cordoned in this look."""


async def answers(project: Project) -> bool:
    """Whether the cluster is there. Then a failure is one of the project, whose objects may be too many or refused."""
    try:
        await project.port.get(NAMESPACE, project.tenant.namespace)
    except NotFound:
        return True
    except OURS:
        return False
    return True


async def follow_all(project: Project) -> tuple[dict[str, NodePoolWish], dict[str, Told]]:
    """Give each NodePool its node pool, or the reason why it has none. Returns both, by the names."""
    async with project.world.db.reading() as connection:
        rows = {row.name: row for row in await rows_of(connection, project)}
        pools = {name: await node_pools.get(connection, row.node_pool_id) for name, row in rows.items()}
    told: dict[str, Told] = {}
    wishes: dict[str, NodePoolWish] = {}
    for thing in project.pools:
        name = str(thing["metadata"]["name"])
        says = await _follow(project, thing, rows.get(name), pools.get(name))
        if isinstance(says, Told):
            told[name] = says
        else:
            wishes[name] = says
    here = {str(thing["metadata"]["name"]) for thing in project.pools}
    for name, row in rows.items():
        if name not in here:
            await _without_object(project, row, pools[name])
    return wishes, told


async def rows_of(connection: Connection, project: Project) -> list[ScaledPool]:
    return await scaled_pools.of_project(connection, project.place.cluster.id, project.place.project_id)


async def _follow(
    project: Project, thing: Object, row: ScaledPool | None, pool: NodePool | None
) -> NodePoolWish | Told:
    metadata = thing["metadata"]
    if "deletionTimestamp" in metadata:
        return await _delete(project, thing, row, pool)
    try:
        wish = _wish(thing)
    except UnreadableObjectError as error:
        return Told("Unreadable", str(error))
    if (
        row is not None
        and pool is not None
        and pool.state is not PoolState.GONE
        and row.object_uid != wish.uid
    ):
        return await _stand_in(project, row, pool, wish)
    if row is None or row.object_uid != wish.uid:
        return await _accept(project, thing, wish)
    if pool is None or pool.state not in WANTED:
        return Told(
            *ended_reason(PoolState.GONE if pool is None else pool.state, None if pool is None else pool.why)
        )
    await _hold(project, thing, wish)
    return wish


def _wish(thing: Object) -> NodePoolWish:
    try:
        return node_pool_wish(thing)
    except UnreadableObjectError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableObjectError(f"the object is not as its schema says: {error!r}") from None


async def _accept(project: Project, thing: Object, wish: NodePoolWish) -> NodePoolWish | Told:
    world = project.world
    async with world.db.transaction() as connection:
        pace = await scaled_pools.pace(connection, project.place.organization_id, now=world.now())
        why = pace.no_more_pools()
        if why is not None:
            return Told("TooManyNodePools", why)
        made = await outcomes.accept(connection, project.place, wish, world.new_id, now=world.now())
    if isinstance(made, Refused):
        return Told("".join(part.capitalize() for part in made.code.split("_")), made.why)
    project.report.count(1)
    await _hold(project, thing, wish)
    return wish


async def _hold(project: Project, thing: Object, wish: NodePoolWish) -> None:
    """From now on it waits for us when it is deleted."""
    if not wish.is_held:
        finalizers = [*(thing["metadata"].get("finalizers") or []), FINALIZER]
        await _patch_metadata(project, thing, {"finalizers": finalizers})


async def _patch_metadata(project: Project, thing: Object, change: Object) -> None:
    """Unless somebody changed it meanwhile: the next look does it then."""
    metadata = thing["metadata"]
    wanted = {"metadata": {"resourceVersion": metadata["resourceVersion"], **change}}
    try:
        await project.port.patch(NODE_POOL, metadata["name"], wanted, metadata["namespace"])
    except (Conflict, NotFound):
        return


async def _stand_in(
    project: Project, row: ScaledPool, pool: NodePool, wish: NodePoolWish
) -> NodePoolWish | Told:
    """Another object of the name is there than the one that the pool was made for."""
    if pool.state not in WANTED:
        return Told(
            "NameInUse", f"the node pool that had this name is {pool.state}; this one follows once it is gone"
        )
    same = (pool.request, pool.node_labels, pool.node_taints) == (wish.request, wish.labels, wish.taints)
    if not same:
        return Told(
            "NameInUse",
            "the node pool of this name was made for another object, and its machines are others; its nodes leave when"
            " they are empty, and this one follows once they are gone",
        )
    async with project.world.db.transaction() as connection:
        await scaled_pools.found_again(connection, row.id, wish.uid)
    return wish


async def _delete(project: Project, thing: Object, row: ScaledPool | None, pool: NodePool | None) -> Told:
    """Its nodes leave, and then it is gone. Without a node pool of its own, it is gone at once."""
    is_ours = row is not None and row.object_uid == thing["metadata"]["uid"]
    if row is not None and pool is not None and is_ours and pool.state is not PoolState.GONE:
        if pool.state not in WANTED or not await _goes_with_others(project):
            await _end(project, row, "its NodePool was deleted in the cluster")
            return Told("Deleting", "Its nodes leave the cluster.")
    elif row is not None and is_ours:
        async with project.world.db.transaction() as connection:
            await scaled_pools.delete(connection, row.id)
    finalizers = thing["metadata"].get("finalizers") or []
    if FINALIZER in finalizers:
        left = [name for name in finalizers if name != FINALIZER]
        await _patch_metadata(project, thing, {"finalizers": left})
        project.report.count(1)
    return Told("Deleting", "Nothing of it is left.")


async def _goes_with_others(project: Project) -> bool:
    """Whether the namespace or all objects of the kind are being deleted. That is no word about nodes with work, so the
    pool goes on as one whose object is missing.
    """
    for resource, name in ((NAMESPACE, project.tenant.namespace), (CUSTOM_RESOURCE_DEFINITION, DEFINITION)):
        try:
            found = await project.port.get(resource, name)
        except NotFound:
            return True
        if "deletionTimestamp" in found["metadata"]:
            return True
    return False


async def _end(project: Project, row: ScaledPool, why: str) -> None:
    world = project.world
    async with world.db.transaction() as connection:
        pool = await node_pools.lock(connection, row.node_pool_id)
        if pool is not None and pool.state in WANTED:
            now = world.now()
            ended = await pool_outcomes.delete(
                connection, pool, NodePoolEvent.DELETED, why=why, actor=project.actor, now=now
            )
            project.report.count(int(ended))


async def _without_object(project: Project, row: ScaledPool, pool: NodePool | None) -> None:
    """Nobody was seen deleting the object, so what runs goes on. When no node is left, the pool goes."""
    now = project.world.now()
    if pool is None or pool.state is PoolState.GONE:
        async with project.world.db.transaction() as connection:
            await scaled_pools.delete(connection, row.id)
    elif row.missing_since is None:
        async with project.world.db.transaction() as connection:
            await scaled_pools.keep(connection, replace(row, missing_since=now, policy=None))
    elif pool.nodes == 0 and now - row.missing_since >= MISSING_EMPTY_FOR:
        await _end(project, row, "its NodePool is gone from the cluster, and it has no nodes any more")
