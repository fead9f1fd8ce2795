"""The custom resources with which customers scale their node pools: `NodePool` and `ScalingPolicy`, in `splitplane.io`.

Both live in a project's namespace, so whose they are is never a matter of what they say. The API server checks them
against the schemas here, gives them their defaults, and refuses the rest with the sentences here. Only we write their
status. What is written about a NodePool apart from its number of nodes is fixed, because its machines are bought by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from data_plane.cluster.objects.tenant import MANAGED_BY, MANAGER, OWN_PREFIX
from data_plane.cluster.resource import (
    CUSTOM_RESOURCE_DEFINITION,
    NODE_POOL,
    SCALING_POLICY,
    Object,
    Objects,
    Resource,
    head,
)

FINALIZER = f"{OWN_PREFIX}/nodes"
"""On a NodePool that has a node pool of ours: its deletion is seen, and done, before it is gone."""
CONSOLIDATING = f"{OWN_PREFIX}/consolidating"
"""An annotation of a Node that we cordoned because it seemed empty."""
NODES_MAX = 64
"""Of a node pool."""
POLICY_NODES_MAX = 1_024
GPUS_MAX = 8_192
POOLS_MAX = 16
"""Of a policy."""
OBJECTS_MAX = 32
"""NodePools of a project in a cluster, and as many ScalingPolicies."""
MARKS_MAX = 32
PLACES_MAX = 16
MESSAGE_MAX = 1_024

_POOL_NAME = "^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
_WORD = "^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"
_USD = r"^[0-9]{1,9}(\.[0-9]{1,9})?$"
_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_BAD_NAME = (
    "the name of a NodePool has 1 to 40 lower-case letters, digits or -, with a letter or digit at both ends"
)


def scaling_definitions() -> Objects:
    """The CustomResourceDefinitions."""
    return [_node_pools(), _scaling_policies()]


def _node_pools() -> Object:
    # A rule of a field is asked when it is there before and after. So whether it is there is asked of the whole.
    optional = ("environment", "regions", "providers", "maxUsdPerHour", "labels", "taints")
    stays = [_fixed(name, f"has(self.{name}) == has(oldSelf.{name})") for name in optional]
    spec: Object = {
        "type": "object",
        "required": ["sku"],
        "properties": {
            "sku": _text("What each node is: a SKU of `splitplane skus`.", pattern=_WORD, maxLength=63),
            "nodes": _whole(
                "How many nodes there are to be. A ScalingPolicy that names the pool decides instead.",
                0,
                NODES_MAX,
                default=0,
            ),
            "environment": _text(
                "The environment of the project; the default one when left out.", maxLength=63
            ),
            "regions": _words("Regions or jurisdictions, such as eu; anywhere when left out."),
            "providers": _words("Names of providers; any when left out."),
            "maxUsdPerHour": _text(
                "The most that one node may cost per hour, in US dollars.", pattern=_USD, maxLength=19
            ),
            "labels": {
                "type": "object",
                "description": "Kubernetes labels of the nodes.",
                "maxProperties": MARKS_MAX,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "taints": {
                "type": "array",
                "description": "Kubernetes taints of the nodes.",
                "maxItems": MARKS_MAX,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "effect"],
                    "properties": {
                        "key": _text("Its key.", maxLength=317),
                        "value": _text("Its value.", maxLength=63, default=""),
                        "effect": {"type": "string", "enum": _EFFECTS},
                    },
                },
            },
        },
        "x-kubernetes-validations": stays,
    }
    for name in ("sku", *optional):
        spec["properties"][name]["x-kubernetes-validations"] = [_fixed(name, "self == oldSelf")]
    status = {
        "nodePool": _text("The id of the node pool, as the API has it."),
        "policy": _text("The ScalingPolicy that decides its number of nodes."),
        "nodes": _whole("How many nodes it is to have now.", 0),
        "orderedNodes": _whole("How many of these are on their way.", 0),
        "readyNodes": _whole("How many of these are open for pods.", 0),
        "usdPerHour": _text("What they cost per hour once they are ready, in US dollars."),
        "lastScaledAt": _moment("When its number of nodes last changed."),
        "lastScaledWhy": _text("Why it changed, as a sentence."),
    }
    columns = [
        _column("SKU", "string", ".spec.sku"),
        _column("Nodes", "integer", ".status.nodes"),
        _column("Ready", "integer", ".status.readyNodes"),
        _column("USD/h", "string", ".status.usdPerHour"),
        _column("Policy", "string", ".status.policy"),
        _column("Accepted", "string", _condition_path("Accepted")),
        _column("Capacity", "string", _condition_path("CapacityAvailable")),
        _column("Age", "date", ".metadata.creationTimestamp"),
    ]
    named = {"rule": f"self.metadata.name.matches('{_POOL_NAME}')", "message": _BAD_NAME}
    scale = {"specReplicasPath": ".spec.nodes", "statusReplicasPath": ".status.nodes"}
    return _definition(NODE_POOL, ("np",), spec, status, columns, rules=[named], scale=scale)


def _fixed(name: str, rule: str) -> Object:
    return {
        "rule": rule,
        "message": f"spec.{name} cannot change, because machines are bought by it; create another NodePool",
    }


def _scaling_policies() -> Object:
    bounds = {
        "type": "object",
        "required": ["name", "maxNodes"],
        "properties": {
            "name": _text("The name of a NodePool in this namespace.", pattern=_POOL_NAME, maxLength=40),
            "minNodes": _whole("How many nodes it always has.", 0, NODES_MAX, default=0),
            "maxNodes": _whole("How many nodes it has at most.", 0, NODES_MAX),
        },
        "x-kubernetes-validations": [
            {"rule": "self.minNodes <= self.maxNodes", "message": "minNodes is greater than maxNodes"}
        ],
    }
    spec = {
        "type": "object",
        "required": ["nodePools"],
        "properties": {
            "nodePools": {
                "type": "array",
                "description": "The node pools that it scales.",
                "minItems": 1,
                "maxItems": POOLS_MAX,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": bounds,
            },
            "limits": {
                "type": "object",
                "description": "Limits on all of its node pools together.",
                "properties": {
                    "nodes": _whole("Nodes.", 0, POLICY_NODES_MAX),
                    "gpus": _whole("GPUs.", 0, GPUS_MAX),
                },
            },
            "budget": _budget(),
            "scaleUp": {
                "type": "object",
                "default": {},
                "properties": {
                    "delaySeconds": _whole(
                        "How long a pod waits before a node is bought for it.", 0, 3_600, default=10
                    )
                },
            },
            "consolidation": {
                "type": "object",
                "default": {},
                "properties": {
                    "enabled": {
                        "type": "boolean",
                        "default": True,
                        "description": "Whether empty nodes leave.",
                    },
                    "emptyForSeconds": _whole(
                        "How long a node is empty before it leaves.", 60, 86_400, default=600
                    ),
                },
            },
        },
    }
    status = {
        "nodes": _whole("Nodes of its node pools, ordered ones included.", 0),
        "readyNodes": _whole("How many of these are open for pods.", 0),
        "gpus": _whole("GPUs of these nodes.", 0),
        "usdPerHour": _text("What they cost per hour, in US dollars."),
        "usdThisMonth": _text(
            "With a budget per month: what its pools were charged this month (UTC), in US dollars."
        ),
        "pendingPods": _whole("Pods of the project that wait for a node.", 0),
        "lastScaledAt": _moment("When it last changed the number of nodes of a pool."),
    }
    columns = [
        _column("Nodes", "integer", ".status.nodes"),
        _column("Ready", "integer", ".status.readyNodes"),
        _column("GPUs", "integer", ".status.gpus"),
        _column("Pending", "integer", ".status.pendingPods"),
        _column("USD/h", "string", ".status.usdPerHour"),
        _column("Budget", "string", ".spec.budget.usdPerHour"),
        _column("Accepted", "string", _condition_path("Accepted")),
        _column("Capacity", "string", _condition_path("CapacityAvailable")),
        _column("Limit", "string", _condition_path("LimitReached")),
        _column("Over budget", "string", _condition_path("BudgetReached"), priority=1),
        _column("USD this month", "string", ".status.usdThisMonth", priority=1),
        _column("Budget/month", "string", ".spec.budget.usdPerMonth", priority=1),
        _column("Age", "date", ".metadata.creationTimestamp"),
    ]
    return _definition(SCALING_POLICY, (), spec, status, columns)


def _budget() -> Object:
    return {
        "type": "object",
        "description": "What all of its nodes together may cost.",
        "properties": {
            "usdPerHour": _text(
                "US dollars per hour, as a decimal number in quotes.", pattern=_USD, maxLength=19
            ),
            "usdPerMonth": _text(
                "US dollars per calendar month (UTC), as a decimal number in quotes.",
                pattern=_USD,
                maxLength=19,
            ),
        },
        "x-kubernetes-validations": [
            {
                "rule": "has(self.usdPerHour) || has(self.usdPerMonth)",
                "message": "a budget has usdPerHour, usdPerMonth or both",
            }
        ],
    }


def _definition(
    resource: Resource,
    short_names: tuple[str, ...],
    spec: Object,
    status: Object,
    columns: Objects,
    *,
    rules: Objects | None = None,
    scale: Object | None = None,
) -> Object:
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": spec,
            "status": {"type": "object", "properties": {**_STATUS, **status}},
        },
        **({"x-kubernetes-validations": rules} if rules else {}),
    }
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, **({"scale": scale} if scale else {})},
        "additionalPrinterColumns": columns,
    }
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "categories": ["splitplane"],
        **({"shortNames": list(short_names)} if short_names else {}),
    }
    definition = head(
        CUSTOM_RESOURCE_DEFINITION, f"{resource.plural}.{resource.group}", labels={MANAGED_BY: MANAGER}
    )
    return {
        **definition,
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _text(description: str, **more: object) -> Object:
    return {"type": "string", "description": description, **more}


def _whole(description: str, least: int, most: int | None = None, **more: object) -> Object:
    bounds = {"minimum": least, **({} if most is None else {"maximum": most})}
    return {"type": "integer", "format": "int32", "description": description, **bounds, **more}


def _moment(description: str) -> Object:
    return {"type": "string", "format": "date-time", "description": description}


def _words(description: str) -> Object:
    return {
        "type": "array",
        "description": description,
        "maxItems": PLACES_MAX,
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "string", "pattern": _WORD, "maxLength": 63},
    }


def _column(name: str, kind: str, path: str, *, priority: int = 0) -> Object:
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}


def _condition_path(kind: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].status'


_CONDITION = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        "type": _text("What it is about.", maxLength=64),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": _text("One word for programs.", maxLength=64),
        "message": _text("A sentence for people.", maxLength=MESSAGE_MAX),
        "lastTransitionTime": _moment("Since when it is so."),
        "observedGeneration": {"type": "integer", "format": "int64"},
    },
}
_STATUS = {
    "observedGeneration": {
        "type": "integer",
        "format": "int64",
        "description": "The generation of the object that this is about.",
    },
    "conditions": {
        "type": "array",
        "description": "What is so, since when, and why.",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": _CONDITION,
    },
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in the status of an object of ours."""

    kind: str
    is_so: bool
    reason: str
    """One word in CamelCase, for programs."""
    message: str
    """A sentence for people."""
    since: datetime
    """When it became so, or when it ceased to be."""


def status_of(resource: Resource, thing: Object, status: Object, conditions: Sequence[Condition]) -> Object:
    """The status of an object, to be applied. None in `status` is left out."""
    metadata = thing["metadata"]
    generation = metadata.get("generation", 0)
    told = [
        {
            "type": each.kind,
            "status": "True" if each.is_so else "False",
            "reason": each.reason,
            "message": each.message[:MESSAGE_MAX],
            "lastTransitionTime": moment(each.since),
            "observedGeneration": generation,
        }
        for each in conditions
    ]
    filled = {name: value for name, value in status.items() if value is not None}
    intent = head(resource, metadata["name"], metadata["namespace"])
    return {**intent, "status": {"observedGeneration": generation, "conditions": told, **filled}}


def moment(at: datetime) -> str:
    """As Kubernetes writes times: in UTC, to the second."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
