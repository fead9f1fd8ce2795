"""What a kubeconfig of ours may do: run workloads in the namespace of its project, and see its nodes.

What is left out, and why:

  - roles and bindings, tokens of ServiceAccounts: whoever stole a kubeconfig could make rights that outlive it;
  - network policies, quotas, limit ranges: they are read only, because they are what keeps tenants apart;
  - Endpoints and EndpointSlices: a Service could be pointed at another tenant's pods;
  - everything below a Node (`nodes/proxy`, `nodes/log`): it is the kubelet's API, which bypasses admission.
"""

from collections.abc import Collection
from typing import Any

from data_plane.cluster.objects.tenant import (
    KUBECONFIGS_NAMESPACE,
    MANAGED_BY,
    MANAGER,
    Tenant,
    name_of,
)
from data_plane.cluster.resource import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Object,
    Objects,
    head,
)

VIEW_ROLE = "splitplane:view"
EDIT_ROLE = "splitplane:edit"
ALL_NODES_ROLE = "splitplane:all-nodes"
_WRITE = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
_READ = ["get", "list", "watch"]
_OURS = {MANAGED_BY: MANAGER}
_WORKLOADS = ["deployments", "replicasets", "statefulsets", "daemonsets"]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


_SEEN = (
    _rule("", ["events", "resourcequotas", "limitranges", "endpoints"], _READ),
    _rule("events.k8s.io", ["events"], _READ),
    _rule("discovery.k8s.io", ["endpointslices"], _READ),
    _rule("networking.k8s.io", ["networkpolicies"], _READ),
)
"""What every kubeconfig reads and none writes."""


def edit_role() -> Object:
    """A ClusterRole, bound in each tenant's namespace and therefore valid in that one only."""
    return _cluster_role(
        EDIT_ROLE,
        [
            _rule("", ["pods", "services", "configmaps", "secrets", "persistentvolumeclaims"], _WRITE),
            _rule("", ["serviceaccounts"], _WRITE),
            _rule("", ["pods/log", "pods/status"], ["get"]),
            _rule("", ["pods/exec", "pods/attach", "pods/portforward"], ["create", "get"]),
            _rule("", ["pods/eviction"], ["create"]),
            _rule("", ["pods/ephemeralcontainers", "pods/resize"], ["get", "patch", "update"]),
            *_SEEN,
            _rule("apps", _WORKLOADS, _WRITE),
            _rule(
                "apps",
                ["deployments/scale", "replicasets/scale", "statefulsets/scale"],
                ["get", "update", "patch"],
            ),
            _rule("batch", ["jobs", "cronjobs"], _WRITE),
            _rule("autoscaling", ["horizontalpodautoscalers"], _WRITE),
            _rule("policy", ["poddisruptionbudgets"], _WRITE),
            _rule("coordination.k8s.io", ["leases"], _WRITE),
            _rule("splitplane.io", ["nodepools", "scalingpolicies"], _WRITE),
            _rule("splitplane.io", ["nodepools/status", "scalingpolicies/status"], ["get"]),
            _rule("splitplane.io", ["nodepools/scale"], ["get", "update", "patch"]),
        ],
    )


def view_role() -> Object:
    """As `edit_role`, to read only. Secrets are left out, and so is what opens a connection into a pod."""
    return _cluster_role(
        VIEW_ROLE,
        [
            _rule("", ["pods", "services", "configmaps", "persistentvolumeclaims", "serviceaccounts"], _READ),
            _rule("", ["pods/log", "pods/status"], ["get"]),
            *_SEEN,
            _rule("apps", _WORKLOADS, _READ),
            _rule("batch", ["jobs", "cronjobs"], _READ),
            _rule("autoscaling", ["horizontalpodautoscalers"], _READ),
            _rule("policy", ["poddisruptionbudgets"], _READ),
            _rule("coordination.k8s.io", ["leases"], _READ),
            _rule("splitplane.io", ["nodepools", "scalingpolicies"], _READ),
            _rule("splitplane.io", ["nodepools/status", "scalingpolicies/status"], ["get"]),
        ],
    )


def all_nodes_role() -> Object:
    """For clusters that are dedicated to one organization: `kubectl get nodes`."""
    return _cluster_role(ALL_NODES_ROLE, [_rule("", ["nodes"], _READ)])


def own_nodes_role(tenant: Tenant, nodes: Collection[str]) -> Object:
    """For clusters that are shared: `kubectl get node NAME...`, for the nodes of one tenant.

    RBAC cannot narrow a list to some objects: whoever may list nodes sees those of all tenants. With names, the verbs
    list and watch permit only a request that selects one of the names by the field metadata.name.
    """
    rules = [{**_rule("", ["nodes"], _READ), "resourceNames": sorted(nodes)}] if nodes else []
    return _cluster_role(own_nodes_role_name(tenant), rules, tenant.labels)


def own_nodes_role_name(tenant: Tenant) -> str:
    return f"splitplane:nodes:{tenant.namespace}"


def service_account(tenant: Tenant, kubeconfig: str) -> Object:
    return head(SERVICE_ACCOUNT, name_of(kubeconfig), KUBECONFIGS_NAMESPACE, labels=tenant.labels)


def bindings(tenant: Tenant, kubeconfig: str, *, work_role: str, nodes_role: str) -> Objects:
    """What makes a kubeconfig's ServiceAccount able to do anything: two bindings that are named like it."""
    name = name_of(kubeconfig)
    who = [{"kind": "ServiceAccount", "name": name, "namespace": KUBECONFIGS_NAMESPACE}]
    work = head(ROLE_BINDING, name, tenant.namespace, labels=tenant.labels)
    nodes = head(CLUSTER_ROLE_BINDING, f"splitplane:{name}", labels=tenant.labels)
    return [
        {**work, "subjects": who, "roleRef": _reference(work_role)},
        {**nodes, "subjects": who, "roleRef": _reference(nodes_role)},
    ]


def _cluster_role(name: str, rules: list[Any], labels: dict[str, str] | None = None) -> Object:
    return {**head(CLUSTER_ROLE, name, labels={**_OURS, **(labels or {})}), "rules": rules}


def _reference(role: str) -> Object:
    return {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": role}
