"""Keeps the place of each project in each cluster: its namespace with quota, network policies and pod security.

A project has one in a cluster where it has a node pool or a kubeconfig. What somebody changed there is put right at the
next look. The quota follows the project's nodes, and pods read there what the workloads on these are asked for. A day
after the project had something there, the namespace is deleted with everything in it. A new place counts as ready once
the API server refuses a pod that our rules forbid: it needs some seconds until it applies them.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from control_plane.db import cluster_tenants, clusters
from control_plane.db.cluster_tenants import AskedOfNode, ClusterTenant, Leased
from control_plane.domain.backoff import delay
from control_plane.domain.cluster import Cluster, ClusterState, server_name
from control_plane.domain.ids import ClusterId, Prefix, on_wire
from data_plane.cluster.objects.resource_quota import Allowance
from data_plane.cluster.objects.signal import NodeSignal
from data_plane.cluster.port import ClusterError, Conflict, Forbidden, Invalid, KubernetesPort
from data_plane.cluster.tenant import keep_tenant, prepare_cluster, remove_tenant, rules_bind
from reconciler.cluster_tenants import tenant_of
from reconciler.loop import Loop, Report, each
from reconciler.renewal import renewed
from reconciler.server_hosts import connected
from reconciler.worlds.clusters import ClusterWorld

NAME = "keep_tenants"
TENANTS_PER_ACTIVATION_MAX = 100
HELD_FOR = timedelta(minutes=1)
"""How long a place waits when the process of its worker is gone."""
LASTS = timedelta(minutes=5)
"""Of an activation."""
AGAIN = timedelta(minutes=5)
"""How long what somebody changed may stay."""
UNNEEDED_FOR = timedelta(hours=24)
"""How long a place stays that nobody needs, with what a customer stored there: a kubeconfig ends overnight."""
SOON = timedelta(seconds=1)
"""When we look again whether the rules bind, and first whether a namespace is gone."""
RETRY_FIRST, RETRY_CEILING = timedelta(seconds=5), timedelta(minutes=5)


async def activate(world: ClusterWorld) -> Report:
    now, token = world.now(), world.new_id()
    async with world.db.transaction() as connection:
        await cluster_tenants.add_needed(connection, now=now)
        await cluster_tenants.note_changes(connection, now=now)
        due = await cluster_tenants.take(
            connection,
            token=token,
            now=now,
            until=now + HELD_FOR,
            unneeded_before=now - UNNEEDED_FOR,
            limit=TENANTS_PER_ACTIVATION_MAX,
        )
        places = {each.cluster_id: await clusters.get(connection, each.cluster_id) for each in due}
    report = Report(looked_at=len(due), more=len(due) == TENANTS_PER_ACTIVATION_MAX)
    async with renewed(lambda: _hold(world, due, token), world.sleep):
        await each(
            [cluster for cluster in places.values() if cluster is not None],
            lambda cluster: _keep_all(world, cluster, _of(due, cluster.id), token, report),
            report,
        )
    return report


async def _hold(world: ClusterWorld, held: Sequence[ClusterTenant], token: UUID) -> bool:
    """Hold places for as long again. False when another worker holds all of them by now."""
    async with world.db.statement() as connection:
        ids = [tenant.id for tenant in held]
        return await cluster_tenants.renew(connection, ids, token=token, until=world.now() + HELD_FOR)


def _of(tenants: list[ClusterTenant], cluster_id: ClusterId) -> list[ClusterTenant]:
    return [tenant for tenant in tenants if tenant.cluster_id == cluster_id]


async def _keep_all(
    world: ClusterWorld, cluster: Cluster, tenants: list[ClusterTenant], token: UUID, report: Report
) -> None:
    """The tenants of one cluster, over one connection. Another cluster that does not answer delays none of them."""
    if cluster.state is not ClusterState.READY:
        for tenant in tenants:
            await _without_cluster(world, cluster, tenant, token, report)
        return
    try:
        async with connected(world, cluster) as port:
            refused = await _refused(world, port, cluster, report)
            for tenant in tenants:
                if refused is not None and tenant.ready_at is None and not tenant.leaves:
                    await _fail(world, tenant, refused, token, report)
                else:
                    await _look_after(world, port, tenant, token, report)
    except Exception as error:  # noqa: BLE001 - whatever it is, operators read it, and all tenants are given back
        for tenant in tenants:
            await _fail(world, tenant, error, token, report)


async def _refused(
    world: ClusterWorld, port: KubernetesPort, cluster: Cluster, report: Report
) -> ClusterError | None:
    """What the API server refuses of what a cluster has once. Places that are ready are kept all the same: their
    network policies and quotas matter most while something in the cluster is wrong.
    """
    try:
        await prepare_cluster(port, server_name(cluster.id), world.device_plugin)
    except (Conflict, Forbidden, Invalid) as error:
        report.errors.append(f"{cluster.name}: {type(error).__name__}: {error}")
        return error
    return None


async def _without_cluster(
    world: ClusterWorld, cluster: Cluster, tenant: ClusterTenant, token: UUID, report: Report
) -> None:
    """Nothing is done in a cluster that is being deleted, as its server goes with everything in it."""
    now = world.now()
    async with world.db.transaction() as connection:
        if cluster.state is ClusterState.GONE:
            report.count(int(await cluster_tenants.removed(connection, tenant.id, token=token, now=now)))
        else:
            await cluster_tenants.wait(connection, tenant.id, token=token, due_at=now + AGAIN)


async def _look_after(
    world: ClusterWorld, port: KubernetesPort, tenant: ClusterTenant, token: UUID, report: Report
) -> None:
    try:
        if tenant.leaves:
            await _remove(world, port, tenant, token, report)
        else:
            await _keep(world, port, tenant, token, report)
    except Exception as error:  # noqa: BLE001 - one tenant that cannot be kept holds up no other one
        await _fail(world, tenant, error, token, report)


async def _keep(
    world: ClusterWorld, port: KubernetesPort, tenant: ClusterTenant, token: UUID, report: Report
) -> None:
    read_at, where = world.now(), (tenant.cluster_id, tenant.project_id)
    async with world.db.reading() as connection:
        # The digest first: what is asked meanwhile makes the place due again.
        leased = await cluster_tenants.leased(connection, *where, now=read_at)
        asked = await cluster_tenants.asked(connection, *where, now=read_at)
    place = tenant_of(tenant.organization_id, tenant.project_id)
    await keep_tenant(port, place, allowance_of(leased), leased.names, [signal_of(each) for each in asked])
    is_ready = tenant.ready_at is not None or await rules_bind(port, place, f"probe-{world.new_id().hex}")
    now = world.now()
    async with world.db.statement() as connection:
        kept = await cluster_tenants.kept(
            connection,
            tenant.id,
            ready_at=now if is_ready else None,
            digest=leased.digest,
            token=token,
            read_at=read_at,
            now=now,
            due_at=now + (AGAIN if is_ready else SOON),
        )
    report.count(int(kept and tenant.ready_at is None and is_ready))


async def _remove(
    world: ClusterWorld, port: KubernetesPort, tenant: ClusterTenant, token: UUID, report: Report
) -> None:
    async with world.db.transaction() as connection:
        leaves = await cluster_tenants.leave(
            connection, tenant.id, token=token, unneeded_before=world.now() - UNNEEDED_FOR
        )
        if not leaves:  # It is needed again, or another worker has it.
            await cluster_tenants.wait(connection, tenant.id, token=token, due_at=world.now())
    if not leaves:
        return
    place = tenant_of(tenant.organization_id, tenant.project_id)
    waits_for = await remove_tenant(port, place, lambda: _hold(world, [tenant], token))
    now = world.now()
    async with world.db.transaction() as connection:
        if waits_for is None:
            report.count(int(await cluster_tenants.removed(connection, tenant.id, token=token, now=now)))
        else:
            # What a customer put there may hold it up for ever: an object with a finalizer that nobody takes off.
            due_at = now + delay(tenant.tries + 1, first=SOON, ceiling=AGAIN)
            await cluster_tenants.failed(connection, tenant.id, token=token, now=now, due_at=due_at)


async def _fail(
    world: ClusterWorld, tenant: ClusterTenant, error: Exception, token: UUID, report: Report
) -> None:
    why = f"{type(error).__name__}: {error}"
    report.errors.append(f"{on_wire(Prefix.PROJECT, tenant.project_id)}: {why}")
    now = world.now()
    due_at = now + delay(tenant.tries + 1, first=RETRY_FIRST, ceiling=RETRY_CEILING)
    async with world.db.statement() as connection:
        await cluster_tenants.failed(connection, tenant.id, token=token, now=now, due_at=due_at)


def allowance_of(leased: Leased) -> Allowance:
    return Allowance(
        nodes=len(leased.names),
        gpus=leased.gpus + leased.gpus_to_come,
        cpu_millis=(leased.vcpus + leased.vcpus_to_come) * 1_000,
        memory_bytes=(leased.memory_gib + leased.memory_gib_to_come) * 2**30,
        nodes_to_come=leased.nodes_to_come,
    )


def signal_of(asked: AskedOfNode) -> NodeSignal:
    ends_at = None if asked.ends_at is None else int(asked.ends_at.timestamp())
    return NodeSignal(asked.node, asked.action, asked.reason, int(asked.until.timestamp()), ends_at)


LOOP = Loop(NAME, timedelta(seconds=2), activate, wakes=("keep_kubeconfigs",), lasts=LASTS)
