"""NodePool and ScalingPolicy objects in a cluster, and pods that need nodes, as a customer and the scheduler write them."""

from datetime import datetime
from typing import Any

from data_plane.cluster.objects.tenant import NODE_PROJECT, PROJECT, Tenant
from data_plane.cluster.resource import NODE_POOL, POD, SCALING_POLICY, Object, head


def node_pool(namespace: str, name: str = "train", /, **spec: Any) -> Object:
    return {**head(NODE_POOL, name, namespace), "spec": {"sku": "h100x1", "nodes": 0, **spec}}


def policy(
    namespace: str,
    name: str = "grow",
    /,
    *,
    pools: dict[str, tuple[int, int]] | None = None,
    limits: dict[str, int] | None = None,
    usd_per_hour: str | None = None,
    usd_per_month: str | None = None,
    empty_for: int = 300,
    delay: int = 10,
) -> Object:
    bounds = [
        {"name": pool, "minNodes": low, "maxNodes": high}
        for pool, (low, high) in (pools or {"train": (0, 4)}).items()
    ]
    spec: Object = {
        "nodePools": bounds,
        "scaleUp": {"delaySeconds": delay},
        "consolidation": {"enabled": True, "emptyForSeconds": empty_for},
    }
    if limits is not None:
        spec["limits"] = limits
    budget = {"usdPerHour": usd_per_hour, "usdPerMonth": usd_per_month}
    if any(budget.values()):
        spec["budget"] = {name: usd for name, usd in budget.items() if usd is not None}
    return {**head(SCALING_POLICY, name, namespace), "spec": spec}


def pending(tenant: Tenant, name: str, now: datetime, *, gpus: int = 1, **spec: Any) -> Object:
    """A pod as our rules change it, for which the scheduler has found no node."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    toleration = {"key": PROJECT, "operator": "Equal", "value": tenant.project, "effect": "NoSchedule"}
    return {
        **head(POD, name, tenant.namespace),
        "spec": {
            "containers": [container],
            "nodeSelector": {NODE_PROJECT: tenant.project},
            "tolerations": [toleration],
            **spec,
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "lastTransitionTime": now.isoformat(),
                }
            ],
        },
    }


def condition(thing: Object, kind: str) -> Object:
    """A condition in an object's status. Raises KeyError when it is not there."""
    found = {each["type"]: each for each in thing["status"]["conditions"]}
    chosen: Object = found[kind]
    return chosen
