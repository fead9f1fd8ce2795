"""What objects of a cluster say about scaling, as values of the domain.

Customers and nodes write these objects. The API server holds them against schemas, and nobody relies on that here:
what cannot be read is refused with a sentence, or left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from control_plane.domain.money import Nano, parse_usd
from control_plane.domain.node_marks import Taint, TaintEffect, label_problem, taint_problem
from control_plane.domain.pod_fit import (
    WORDS_MAX,
    Amounts,
    NodeFace,
    NodeTaint,
    Operator,
    PendingPod,
    Requirement,
    Toleration,
)
from control_plane.domain.request import CapacityRequest
from control_plane.domain.scaled_pool import Condition, NodePoolWish, PolicyWish, PoolBounds
from control_plane.domain.scaling import Policy
from data_plane.cluster.capacity import whole_amount
from data_plane.cluster.objects.pod import Draining, draining
from data_plane.cluster.objects.scaling import CONSOLIDATING, FINALIZER
from data_plane.cluster.resource import Object, Objects

_OF_NODES = ("cpu", "memory", "pods", "ephemeral-storage")


class UnreadableObjectError(ValueError):
    """An object does not say what its schema demands. The text is a sentence for its writer."""


def node_pool_wish(thing: Object) -> NodePoolWish:
    """Raises UnreadableObjectError."""
    metadata, spec = thing["metadata"], thing.get("spec") or {}
    labels = dict(spec.get("labels") or {})
    problem = label_problem(labels)
    taints = tuple(
        Taint(each["key"], each.get("value", ""), TaintEffect(each["effect"]))
        for each in spec.get("taints") or []
    )
    problem = problem or taint_problem(taints)
    if problem is not None:
        raise UnreadableObjectError(problem)
    most = spec.get("maxUsdPerHour")
    return NodePoolWish(
        name=metadata["name"],
        uid=metadata["uid"],
        is_deleted="deletionTimestamp" in metadata,
        is_held=FINALIZER in (metadata.get("finalizers") or []),
        request=CapacityRequest(
            spec["sku"],
            regions=tuple(spec.get("regions") or ()),
            providers=tuple(spec.get("providers") or ()),
            price_nano_per_hour_max=None if most is None else _money("spec.maxUsdPerHour", most),
        ),
        nodes=int(spec.get("nodes", 0)),
        environment=spec.get("environment") or None,
        labels=labels,
        taints=taints,
    )


def policy_wish(thing: Object) -> PolicyWish:
    """Raises UnreadableObjectError."""
    metadata, spec = thing["metadata"], thing.get("spec") or {}
    limits, budget = spec.get("limits") or {}, spec.get("budget") or {}
    consolidation, scale_up = spec.get("consolidation") or {}, spec.get("scaleUp") or {}
    most, of_month = budget.get("usdPerHour"), budget.get("usdPerMonth")
    empty_for = timedelta(seconds=int(consolidation.get("emptyForSeconds", 600)))
    return PolicyWish(
        name=metadata["name"],
        created_at=read_moment(metadata["creationTimestamp"]),
        pools=tuple(
            PoolBounds(each["name"], int(each.get("minNodes", 0)), int(each["maxNodes"]))
            for each in spec["nodePools"]
        ),
        policy=Policy(
            metadata["name"],
            nodes_max=limits.get("nodes"),
            gpus_max=limits.get("gpus"),
            nano_per_hour_max=None if most is None else _money("spec.budget.usdPerHour", most),
            nano_per_month_max=None if of_month is None else _money("spec.budget.usdPerMonth", of_month),
            scale_up_after=timedelta(seconds=int(scale_up.get("delaySeconds", 10))),
            empty_for=empty_for if consolidation.get("enabled", True) else None,
        ),
    )


def _money(where: str, text: str) -> Nano:
    try:
        return parse_usd(text)
    except ValueError as error:
        raise UnreadableObjectError(f"{where}: {error}") from None


def read_moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def conditions_of(thing: Object) -> tuple[Condition, ...]:
    """The conditions that an object was told last. They are shown, and decide nothing."""
    found = (thing.get("status") or {}).get("conditions") or []
    return tuple(
        Condition(
            each["type"],
            each["status"] == "True",
            each["reason"],
            each["message"],
            read_moment(each["lastTransitionTime"]),
        )
        for each in found
    )


@dataclass
class NodeUse:
    """What pods take of a node."""

    asks: Amounts = field(default_factory=Amounts)
    has_work: bool = False


def use_of_nodes(pods: Objects) -> dict[str, NodeUse]:
    """What pods take of each node, by its name. Those that ended take nothing."""
    used: dict[str, NodeUse] = {}
    for pod in pods:
        node = pod.get("spec", {}).get("nodeName")
        if not node or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            continue
        use = used.setdefault(node, NodeUse())
        spec = pod.get("spec", {})
        use.asks = use.asks.plus(Amounts(pods=1) if _is_long(spec) else asks_of(spec))
        use.has_work = use.has_work or draining(pod) is not Draining.LEAVE
    return used


def pending_pods(pods: Objects) -> list[PendingPod]:
    """The pods for which the scheduler found no node. Those of DaemonSets come with a node and ask for none."""
    return [_pending(pod, since) for pod in pods if (since := pending_since(pod)) is not None]


def pending_since(pod: Object) -> datetime | None:
    """Since when the scheduler finds no node for a pod; None when it needs none."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    if spec.get("nodeName") or "deletionTimestamp" in pod["metadata"] or status.get("phase") != "Pending":
        return None
    if any(owner.get("kind") == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or []):
        return None
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return read_moment(condition.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])
    return None


def _pending(pod: Object, since: datetime) -> PendingPod:
    spec, name = pod["spec"], pod["metadata"]["name"]
    if _is_long(spec):
        what = f"more than {WORDS_MAX} containers, resources, selectors, affinity terms and tolerations"
        return PendingPod(name, since, Amounts(pods=1), beyond=what)
    terms = _terms(spec)
    return PendingPod(
        name,
        since,
        asks_of(spec),
        selector=dict(spec.get("nodeSelector") or {}),
        terms=tuple(
            tuple(
                Requirement(each["key"], Operator(each["operator"]), tuple(each.get("values") or ()))
                for each in term.get("matchExpressions") or []
            )
            for term in terms
        ),
        tolerations=tuple(
            Toleration(
                each.get("key") or "",
                each.get("operator") or "Equal",
                each.get("value") or "",
                each.get("effect") or "",
            )
            for each in spec.get("tolerations") or []
        ),
        beyond=_beyond(spec, terms),
    )


def _beyond(spec: Object, terms: list[Any]) -> str | None:
    """What a pod asks for that decides where it runs and that scaling does not understand."""
    affinity, required = spec.get("affinity") or {}, "requiredDuringSchedulingIgnoredDuringExecution"
    if (affinity.get("podAffinity") or {}).get(required):
        return "required podAffinity"
    if (affinity.get("podAntiAffinity") or {}).get(required):
        return "required podAntiAffinity"
    if any(term.get("matchFields") for term in terms):
        return "matchFields of node affinity"
    spread = spec.get("topologySpreadConstraints") or []
    if any(each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for each in spread):
        return "topologySpreadConstraints with DoNotSchedule"
    if any("persistentVolumeClaim" in each or "ephemeral" in each for each in spec.get("volumes") or []):
        return "volume claims"
    return "resourceClaims" if spec.get("resourceClaims") else None


def _is_long(spec: Object) -> bool:
    """Whether a pod says more about where it runs than is held against each node."""
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    resources = [each.get("resources") or {} for each in containers]
    asked = sum(len(each.get("limits") or {}) + len(each.get("requests") or {}) for each in resources)
    expressions = [each for term in _terms(spec) for each in term.get("matchExpressions") or []]
    values = sum(len(each.get("values") or []) for each in expressions)
    marks = len(spec.get("nodeSelector") or {}) + len(spec.get("tolerations") or [])
    return len(containers) + asked + len(_terms(spec)) + len(expressions) + values + marks > WORDS_MAX


def _terms(spec: Object) -> list[Any]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return required.get("nodeSelectorTerms") or []


def asks_of(spec: Object) -> Amounts:
    """What the scheduler sets aside for a pod: its containers together, or an init container that asks for more
    (https://kubernetes.io/docs/concepts/workloads/pods/init-containers/, "Resource sharing", 2026-11-28).
    """
    together = Amounts()
    for container in spec.get("containers") or []:
        together = together.plus(_requests(container.get("resources")))
    most, beside = Amounts(), Amounts()
    for container in spec.get("initContainers") or []:
        asks = _requests(container.get("resources"))
        if container.get("restartPolicy") == "Always":
            beside = beside.plus(asks)
            asks = beside
        else:
            asks = asks.plus(beside)
        most = _most(most, asks)
    asks = _most(together.plus(beside), most).plus(_amounts(spec.get("overhead") or {}))
    return asks.plus(Amounts(pods=1))


def _most(one: Amounts, other: Amounts) -> Amounts:
    names = {**one.devices, **other.devices}
    return Amounts(
        max(one.cpu_millis, other.cpu_millis),
        max(one.memory_bytes, other.memory_bytes),
        max(one.pods, other.pods),
        {name: max(one.devices.get(name, 0), other.devices.get(name, 0)) for name in names},
    )


def _requests(resources: Object | None) -> Amounts:
    """What is limited and not requested is requested as it is limited."""
    given = resources or {}
    return _amounts({**(given.get("limits") or {}), **(given.get("requests") or {})})


def _amounts(given: Mapping[str, str]) -> Amounts:
    devices = {
        name: whole_amount(amount)
        for name, amount in given.items()
        if name not in _OF_NODES and not name.startswith(("hugepages-", "attachable-volumes-"))
    }
    memory = whole_amount(given.get("memory", "0"))
    return Amounts(
        whole_amount(given.get("cpu", "0"), 1_000), memory, whole_amount(given.get("pods", "0")), devices
    )


def allocatable_of(node: Object) -> Amounts:
    """What a node says it has for pods. Raises ValueError for what is no quantity."""
    return _amounts((node.get("status") or {}).get("allocatable") or {})


def face_of(node: Object) -> NodeFace:
    labels = node["metadata"].get("labels") or {}
    taints = (node.get("spec") or {}).get("taints") or []
    return NodeFace(
        labels, tuple(NodeTaint(each["key"], each.get("value", ""), each["effect"]) for each in taints)
    )


def is_ready(node: Object) -> bool:
    found = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in found)


def is_cordoned(node: Object) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def is_consolidating(node: Object) -> bool:
    """Whether it was cordoned by us, because it seemed empty."""
    return is_cordoned(node) and CONSOLIDATING in (node["metadata"].get("annotations") or {})


def asks_of_daemon_sets(daemon_sets: Objects) -> Amounts:
    """What the DaemonSets of a project take of each of its nodes, at most."""
    together = Amounts()
    for each in daemon_sets:
        spec = each.get("spec", {}).get("template", {}).get("spec", {})
        together = together.plus(Amounts(pods=1) if _is_long(spec) else asks_of(spec))
    return together
