"""Who may talk to a tenant's pods, and to whom they may talk.

Pods of a namespace reach each other and DNS, and the internet where a pod asks for it by a label. Nothing else.
"""

from data_plane.cluster.objects.tenant import INTERNET, Tenant
from data_plane.cluster.resource import NETWORK_POLICY, Object, Objects, head

_PRIVATE = (
    "0.0.0.0/8",
    "10.0.0.0/8",  # Pods, services and overlays of ours, and the private networks of most providers.
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",  # A provider's metadata service tells whoever asks what we gave the machine to start with.
    "172.16.0.0/12",
    "192.168.0.0/16",
    "224.0.0.0/3",
)


def network_policies(tenant: Tenant) -> Objects:
    to_internet = {"matchLabels": {INTERNET: "true"}}
    return [
        _policy(tenant, "splitplane-deny", ["Ingress", "Egress"]),
        _policy(
            tenant,
            "splitplane-own-namespace",
            ["Ingress", "Egress"],
            ingress=[_from_own()],
            egress=[_to_own()],
        ),
        _policy(tenant, "splitplane-dns", ["Egress"], egress=[_to_dns()]),
        _policy(tenant, "splitplane-internet", ["Egress"], pods=to_internet, egress=[_out()]),
    ]


def _policy(
    tenant: Tenant,
    name: str,
    kinds: list[str],
    *,
    pods: Object | None = None,
    ingress: Objects | None = None,
    egress: Objects | None = None,
) -> Object:
    """Both directions are always named: server-side apply leaves alone what an intent does not mention."""
    spec = {"podSelector": pods or {}, "policyTypes": kinds, "ingress": ingress or [], "egress": egress or []}
    return {**head(NETWORK_POLICY, name, tenant.namespace, labels=tenant.labels), "spec": spec}


def _from_own() -> Object:
    return {"from": [{"podSelector": {}}]}


def _to_own() -> Object:
    return {"to": [{"podSelector": {}}]}


def _to_dns() -> Object:
    system = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    server = {"matchLabels": {"k8s-app": "kube-dns"}}
    ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    return {"to": [{"namespaceSelector": system, "podSelector": server}], "ports": ports}


def _out() -> Object:
    return {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(_PRIVATE)}}]}
