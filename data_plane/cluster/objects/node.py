"""What we put on a Node: whose it is, as labels that it cannot change, and a taint that keeps others' pods off."""

import re

from data_plane.cluster.objects.tenant import (
    NODE_GPU,
    NODE_LEASE,
    NODE_ORGANIZATION,
    NODE_POOL,
    NODE_PREFIX,
    NODE_PROJECT,
    OWN_PREFIX,
    PROJECT,
    Tenant,
    checked,
)
from data_plane.cluster.resource import Object, Objects

JOINING = f"{OWN_PREFIX}/joining"
"""The taint with which a node registers, and which we take off once it has been checked."""
EFFECT = "NoSchedule"
"""The effect of our taints."""
GPU_LABEL = {NODE_GPU: "nvidia"}
"""On nodes that were sold with GPUs, from the moment at which we saw that they keep pods away."""


_POOL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def labels(tenant: Tenant, lease: str, pool: str, *, has_gpus: bool) -> dict[str, str]:
    """Raises ValueError for what is no id, or no name of a pool."""
    if not _POOL.fullmatch(pool):
        raise ValueError(f"{pool!r} is no name of a node pool: up to 63 characters of a-z, 0-9 and -")
    return {
        NODE_ORGANIZATION: tenant.organization,
        NODE_PROJECT: tenant.project,
        NODE_LEASE: checked(lease),
        NODE_POOL: pool,
        **(GPU_LABEL if has_gpus else {}),
    }


def labels_of_nobody(node: Object) -> dict[str, None]:
    """What takes all our labels off a Node, in a merge patch."""
    present = node["metadata"].get("labels", {})
    return {name: None for name in present if name.startswith(f"{NODE_PREFIX}/")}


def joining_taint() -> Object:
    return {"key": JOINING, "value": "true", "effect": EFFECT}


def quarantine_taint() -> Object:
    """On an open node that seems to lie, and is kept until an operator has looked: no new pod lands there."""
    return {"key": f"{OWN_PREFIX}/quarantined", "value": "true", "effect": EFFECT}


def keeps_pods_away(node: Object) -> bool:
    """Whether a Node has the taint with which nodes register. With another effect, pods could land there."""
    present = node.get("spec", {}).get("taints") or []
    wanted = joining_taint()
    return any(
        taint.get("key") == wanted["key"] and taint.get("effect") == wanted["effect"] for taint in present
    )


def tenant_taint(tenant: Tenant) -> Object:
    return {"key": PROJECT, "value": tenant.project, "effect": EFFECT}


def taints_with(node: Object, tenant: Tenant) -> Objects:
    """A node's taints with the tenant's in place of ours. Those that Kubernetes set stay."""
    present = node["spec"].get("taints", [])
    return [taint for taint in present if not taint["key"].startswith(f"{OWN_PREFIX}/")] + [
        tenant_taint(tenant)
    ]
