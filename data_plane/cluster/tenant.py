"""A tenant's place in a cluster, brought about and taken away. Each function can be repeated at any time."""

from collections.abc import Awaitable, Callable, Collection

from data_plane.cluster.objects.admission import PRIORITY_RULE, admission_policies
from data_plane.cluster.objects.device_plugin import DevicePlugin, device_plugin_objects
from data_plane.cluster.objects.expected_nodes import expected_nodes
from data_plane.cluster.objects.namespace import deletion_problem, kubeconfigs_namespace, tenant_namespace
from data_plane.cluster.objects.network_policy import network_policies
from data_plane.cluster.objects.node_addresses import node_addresses
from data_plane.cluster.objects.node_name import reserved_node_name
from data_plane.cluster.objects.probe import probe
from data_plane.cluster.objects.resource_quota import Allowance, limit_range, resource_quota
from data_plane.cluster.objects.role import (
    all_nodes_role,
    edit_role,
    own_nodes_role,
    own_nodes_role_name,
    view_role,
)
from data_plane.cluster.objects.scaling import scaling_definitions
from data_plane.cluster.objects.signal import NodeSignal, signal_map
from data_plane.cluster.objects.tenant import KUBECONFIGS_NAMESPACE, PROJECT, Tenant
from data_plane.cluster.port import (
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    KubernetesPort,
    NotFound,
    delete_if_there,
)
from data_plane.cluster.resource import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    Object,
    Objects,
    Resource,
)


async def prepare_cluster(
    port: KubernetesPort, server_name: str, device_plugin: DevicePlugin | None = None
) -> None:
    """What a cluster has once, before its first tenant. The API server needs some seconds until its rules bind.

    `server_name` is reserved before nodes can join, for which the list of expected nodes has to be there.

    Without a device plugin of ours, one that is there stays: it may be an operator's own.

    Raises the first refusal when all were tried.
    """
    await _apply_all(
        port,
        *admission_policies(server_name),
        *scaling_definitions(),
        view_role(),
        edit_role(),
        all_nodes_role(),
        kubeconfigs_namespace(),
        reserved_node_name(server_name),
        expected_nodes(),
        node_addresses(),
        *(device_plugin_objects(device_plugin) if device_plugin else []),
    )


async def _apply_all(port: KubernetesPort, *things: Object) -> None:
    """An object that the API server refuses holds up no other one. Raises the first refusal when all were tried."""
    refused: list[ClusterError] = []
    for thing in things:
        try:
            await port.apply(thing, take_over=True)
        except (Conflict, Forbidden, Invalid) as error:
            refused.append(error)
    if refused:
        raise refused[0]


async def define_scaling(port: KubernetesPort) -> None:
    """The kinds NodePool and ScalingPolicy, as soon as a cluster is there: quotas count new kinds minutes later."""
    for definition in scaling_definitions():
        await port.apply(definition, take_over=True)


async def keep_tenant(
    port: KubernetesPort,
    tenant: Tenant,
    allowance: Allowance,
    nodes: Collection[str],
    asked: Collection[NodeSignal] = (),
) -> None:
    """Namespace, network policies, quota, limits, the right to see `nodes`, and what their workloads are asked for,
    whatever became of them meanwhile. Raises the first refusal when all were tried.
    """
    await port.apply(tenant_namespace(tenant), take_over=True)
    await _apply_all(
        port,
        signal_map(tenant, asked),
        *network_policies(tenant),
        resource_quota(tenant, allowance),
        limit_range(tenant),
        own_nodes_role(tenant, nodes),
    )


async def rules_bind(port: KubernetesPort, tenant: Tenant, name: str) -> bool:
    """Whether the API server applies our admission rules by now, which it does seconds after it got them.

    A pod that they forbid is tried. `name` has to be a new one each time: the rule is about creation, and what was
    created before it binds stays.
    """
    try:
        await port.apply(probe(tenant, name))
    except Invalid as refused:
        return PRIORITY_RULE in str(refused)
    except Forbidden:
        return False  # The quota was asked, which is asked after our rules.
    await port.delete(POD, name, tenant.namespace, grace_s=0)
    return False


async def remove_tenant(
    port: KubernetesPort, tenant: Tenant, is_ours: Callable[[], Awaitable[bool]]
) -> str | None:
    """Delete the namespace with all that is in it, and every kubeconfig. None once it is gone, or what it waits for.

    `is_ours` is asked when all is found, and before anything is deleted, by its uid: whoever stalls after that deletes
    nothing that was made later.
    """
    wanted = [
        (
            SERVICE_ACCOUNT,
            await port.list(SERVICE_ACCOUNT, KUBECONFIGS_NAMESPACE, labels={PROJECT: tenant.project}),
        ),
        (CLUSTER_ROLE_BINDING, await port.list(CLUSTER_ROLE_BINDING, labels={PROJECT: tenant.project})),
        (CLUSTER_ROLE, await _found(port, CLUSTER_ROLE, own_nodes_role_name(tenant))),
    ]
    namespaces = await _found(port, NAMESPACE, tenant.namespace)
    if not await is_ours():
        return "another worker looks after it"
    for resource, found in wanted:
        for thing in found:
            where = thing["metadata"]
            await delete_if_there(port, resource, where["name"], where.get("namespace"), uid=where["uid"])
    for namespace in namespaces:
        if "deletionTimestamp" in namespace["metadata"]:
            return deletion_problem(namespace) or "its objects are being deleted"
        await delete_if_there(port, NAMESPACE, tenant.namespace, uid=namespace["metadata"]["uid"])
        return "its objects are being deleted"
    return None


async def _found(port: KubernetesPort, resource: Resource, name: str) -> Objects:
    """The object of this name, or none."""
    try:
        return [await port.get(resource, name)]
    except NotFound:
        return []
