"""How much a tenant's namespace may hold: as many GPUs as it leases nodes for, and bounds on what would burden others.

The API server and its database are shared by all tenants of a cluster, so the number of objects is bounded as well: by
few while a project has no nodes, since projects cost nothing. Events are not counted. No tenant can write them,
Kubernetes deletes them after an hour, and each would write the quota as well. Revisions of StatefulSets and DaemonSets
are: their controllers write as many as a tenant wants kept.
"""

from dataclasses import dataclass

from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.resource import LIMIT_RANGE, RESOURCE_QUOTA, Object, head

PODS_PER_NODE = 110
"""What a kubelet runs at most, unless it is told otherwise."""
OBJECTS_MAX = {
    "services": 100,
    "services.nodeports": 0,
    "services.loadbalancers": 0,
    "count/configmaps": 500,
    "count/secrets": 500,
    "count/serviceaccounts": 50,
    "count/jobs.batch": 1_000,
    "count/cronjobs.batch": 100,
    "count/deployments.apps": 200,
    "count/replicasets.apps": 2_000,
    "count/statefulsets.apps": 200,
    "count/daemonsets.apps": 20,
    "count/controllerrevisions.apps": 2_000,
    "count/poddisruptionbudgets.policy": 100,
    "count/leases.coordination.k8s.io": 200,
    "count/horizontalpodautoscalers.autoscaling": 100,
    "persistentvolumeclaims": 100,
    "count/nodepools.splitplane.io": 32,
    "count/scalingpolicies.splitplane.io": 32,
}
_KUBECONFIGS = "count/serviceaccounts"
"""Each kubeconfig is one, and they are small."""
OBJECTS_MAX_WITHOUT_NODES = 10
"""Of each kind. One object may have more than a megabyte."""
PENDING_PODS_MAX = 500
"""Pods for which there may be no node yet."""
ENDED_PODS_MAX = 2_000
"""`pods` does not count those that ended, and Kubernetes deletes them late."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a tenant's pods may ask for together."""

    nodes: int
    """Leased ones."""
    gpus: int
    """Of these, and of the nodes that may be bought for pods. So are CPU and memory."""
    cpu_millis: int
    memory_bytes: int
    nodes_to_come: int = 0
    """How many nodes may be bought for pods that wait. Without room for such pods in the quota, none would wait."""

    @property
    def pods(self) -> int:
        more = min(self.nodes_to_come * PODS_PER_NODE, PENDING_PODS_MAX)
        return self.nodes * PODS_PER_NODE + more


def resource_quota(tenant: Tenant, allowance: Allowance) -> Object:
    hard = {
        "requests.nvidia.com/gpu": allowance.gpus,
        "requests.cpu": f"{allowance.cpu_millis}m",
        "requests.memory": allowance.memory_bytes,
        "pods": allowance.pods,
        "count/pods": allowance.pods + (ENDED_PODS_MAX if allowance.pods else 0),
        **_objects_max(allowance),
    }
    quota = head(RESOURCE_QUOTA, "splitplane", tenant.namespace, labels=tenant.labels)
    return {**quota, "spec": {"hard": {name: str(amount) for name, amount in hard.items()}}}


def _objects_max(allowance: Allowance) -> dict[str, int]:
    if allowance.nodes:
        return OBJECTS_MAX
    few = {name: min(count, OBJECTS_MAX_WITHOUT_NODES) for name, count in OBJECTS_MAX.items()}
    return {**few, _KUBECONFIGS: OBJECTS_MAX[_KUBECONFIGS]}


def limit_range(tenant: Tenant) -> Object:
    """What a container requests that names nothing itself. Without it, the quota would refuse its pod."""
    requests = {"cpu": "100m", "memory": "256Mi"}
    limits = head(LIMIT_RANGE, "splitplane", tenant.namespace, labels=tenant.labels)
    return {**limits, "spec": {"limits": [{"type": "Container", "defaultRequest": requests}]}}
