"""A tenant's place in a cluster, brought about and taken away. Each function can be repeated at any time."""

from data_plane.cluster.objects.admission import admission_policies
from data_plane.cluster.objects.namespace import deletion_problem, kubeconfigs_namespace, tenant_namespace
from data_plane.cluster.objects.network_policy import network_policies
from data_plane.cluster.objects.resource_quota import Allowance, limit_range, resource_quota
from data_plane.cluster.objects.role import all_nodes_role, lease_nodes_role, tenant_role
from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.port import KubernetesPort, NotFound
from data_plane.cluster.resource import NAMESPACE


async def prepare_cluster(port: KubernetesPort) -> None:
    """What a cluster has once, before its first tenant. The API server needs some seconds until its rules bind."""
    for thing in (kubeconfigs_namespace(), tenant_role(), all_nodes_role(), *admission_policies()):
        await port.apply(thing, take_over=True)


async def keep_tenant(port: KubernetesPort, tenant: Tenant, allowance: Allowance) -> None:
    """Namespace, network policies, quota and limits as they ought to be, whatever became of them."""
    inside = (*network_policies(tenant), resource_quota(tenant, allowance), limit_range(tenant))
    for thing in (tenant_namespace(tenant), *inside):
        await port.apply(thing, take_over=True)


async def keep_nodes_of_lease(port: KubernetesPort, lease: str, nodes: list[str]) -> None:
    """Which nodes a kubeconfig for this lease sees in a cluster that is shared."""
    await port.apply(lease_nodes_role(lease, nodes), take_over=True)


async def remove_tenant(port: KubernetesPort, tenant: Tenant) -> str | None:
    """Delete the namespace with all that is in it. None once it is gone, else what it waits for."""
    try:
        namespace = await port.get(NAMESPACE, tenant.namespace)
        if "deletionTimestamp" not in namespace["metadata"]:
            await port.delete(NAMESPACE, tenant.namespace, uid=namespace["metadata"]["uid"])
            return "its objects are being deleted"
    except NotFound:
        return None
    return deletion_problem(namespace) or "its objects are being deleted"
