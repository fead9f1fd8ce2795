"""A tenant's namespace, with the strictest of Kubernetes' Pod Security Standards."""

from data_plane.cluster.objects.tenant import KUBECONFIGS_NAMESPACE, MANAGED_BY, MANAGER, Tenant
from data_plane.cluster.resource import NAMESPACE, Object, head

POD_SECURITY = "restricted"
"""No root, no host namespaces, no host paths, no capabilities. It also refuses what a workload would create later."""


def tenant_namespace(tenant: Tenant) -> Object:
    modes = ("enforce", "audit", "warn")
    security = {f"pod-security.kubernetes.io/{mode}": POD_SECURITY for mode in modes}
    return head(NAMESPACE, tenant.namespace, labels={**tenant.labels, **security})


def kubeconfigs_namespace() -> Object:
    """The namespace of the ServiceAccounts behind kubeconfigs. Nothing runs there."""
    security = {"pod-security.kubernetes.io/enforce": POD_SECURITY}
    return head(NAMESPACE, KUBECONFIGS_NAMESPACE, labels={MANAGED_BY: MANAGER, **security})


def deletion_problem(namespace: Object) -> str | None:
    """Why a namespace that is being deleted stays; None when nothing is known to hold it up.

    One aggregated API that is away holds up every deletion of a namespace, because Kubernetes then cannot know whether
    objects of that API are left.
    """
    conditions = namespace.get("status", {}).get("conditions", [])
    problems = [
        entry
        for entry in conditions
        if entry["type"].startswith("NamespaceDeletion") and entry["status"] == "True"
    ]
    return "; ".join(f"{entry['reason']}: {entry.get('message', '')}" for entry in problems) or None
