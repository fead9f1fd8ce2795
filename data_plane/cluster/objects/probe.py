"""A pod that our admission rules forbid, and nothing else does: whether it is refused shows whether they bind."""

from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.resource import POD, Object, head


def probe(tenant: Tenant, name: str) -> Object:
    """It never runs: its image does not exist, and no node of a tenant's takes it."""
    container = {
        "name": "probe",
        "image": "probe.invalid/probe",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "containers": [container],
        "priorityClassName": "system-node-critical",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {**head(POD, name, tenant.namespace, labels=tenant.labels), "spec": spec}
