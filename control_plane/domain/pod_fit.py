"""Whether a pod fits a node, by the part of kube-scheduler's rules that scaling understands.

That part is what most pods use: requests, node selectors, required node affinity, taints and tolerations
(https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/, 2026-11-28). A pod that asks for more than
that, such as being beside another pod, is named and never bought for: a node might be bought in vain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

GIB = 2**30
WORDS_MAX = 200
"""Of a pod's containers with their resources, selectors, affinity and tolerations. They are held against each node, so
whoever writes them decides how much there is to compute.
"""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What pods ask for, or what a node has for them."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    pods: int = 0
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    """Extended resources by name, such as `nvidia.com/gpu`."""

    def plus(self, other: "Amounts") -> "Amounts":
        names = {**self.devices, **other.devices}
        return Amounts(
            self.cpu_millis + other.cpu_millis,
            self.memory_bytes + other.memory_bytes,
            self.pods + other.pods,
            {name: self.devices.get(name, 0) + other.devices.get(name, 0) for name in names},
        )

    def minus(self, other: "Amounts") -> "Amounts":
        """Below zero where more is used than there is, so that nothing else fits."""
        names = {**self.devices, **other.devices}
        return Amounts(
            self.cpu_millis - other.cpu_millis,
            self.memory_bytes - other.memory_bytes,
            self.pods - other.pods,
            {name: self.devices.get(name, 0) - other.devices.get(name, 0) for name in names},
        )

    def least(self, other: "Amounts") -> "Amounts":
        """The smaller one of each amount."""
        names = {**self.devices, **other.devices}
        return Amounts(
            min(self.cpu_millis, other.cpu_millis),
            min(self.memory_bytes, other.memory_bytes),
            min(self.pods, other.pods),
            {name: min(self.devices.get(name, 0), other.devices.get(name, 0)) for name in names},
        )


class Operator(StrEnum):
    """How a label is compared (`NodeSelectorRequirement`)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.GT | Operator.LT:
                return _compares(self.operator, value, self.values)


def _compares(operator: Operator, value: str | None, values: tuple[str, ...]) -> bool:
    try:
        (bound,) = values
        number, limit = int(value or ""), int(bound)
    except ValueError:  # No number, or not one bound: Kubernetes takes that for no match.
        return False
    return number > limit if operator is Operator.GT else number < limit


@dataclass(frozen=True, slots=True)
class NodeTaint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    """Empty: every key."""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """Empty: every effect."""

    def tolerates(self, taint: NodeTaint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.key != "" and self.value == taint.value)


KEEPS_PODS_AWAY = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that the scheduler found no node for."""

    name: str
    pending_since: datetime
    asks: Amounts
    """With itself as one pod."""
    selector: Mapping[str, str] = field(default_factory=dict[str, str])
    terms: tuple[tuple[Requirement, ...], ...] = ()
    """Required node affinity: all of one of these. Empty: any node."""
    tolerations: tuple[Toleration, ...] = ()
    beyond: str | None = None
    """What it asks for that scaling does not understand, in words; None when nothing is."""


@dataclass(frozen=True, slots=True)
class NodeFace:
    """What pods see of a node besides its room."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[NodeTaint, ...] = ()


def misfit(pod: PendingPod, face: NodeFace, room: Amounts) -> str | None:
    """Why a pod does not fit a node with this room, in words; None when it does."""
    return _not_chosen(pod, face.labels) or _kept_away(pod, face.taints) or _short(pod.asks, room)


def _not_chosen(pod: PendingPod, labels: Mapping[str, str]) -> str | None:
    for key, value in sorted(pod.selector.items()):
        if labels.get(key) != value:
            return f"it selects nodes with the label {key}={value}"
    if pod.terms and not any(all(each.holds(labels) for each in term) for term in pod.terms):
        return "its required node affinity chooses other nodes"
    return None


def _kept_away(pod: PendingPod, taints: tuple[NodeTaint, ...]) -> str | None:
    for taint in taints:
        if taint.effect in KEEPS_PODS_AWAY and not any(each.tolerates(taint) for each in pod.tolerations):
            return f"it does not tolerate the taint {taint.key}={taint.value}:{taint.effect}"
    return None


def _short(asks: Amounts, room: Amounts) -> str | None:
    for name, count in sorted(asks.devices.items()):
        if count > max(0, room.devices.get(name, 0)):
            return f"it asks for {count} {name}, and there are {max(0, room.devices.get(name, 0))}"
    if asks.cpu_millis > room.cpu_millis:
        return f"it asks for {asks.cpu_millis}m of CPU, and there are {max(0, room.cpu_millis)}m"
    if asks.memory_bytes > room.memory_bytes:
        return f"it asks for {_gib(asks.memory_bytes)} of memory, and there are {_gib(max(0, room.memory_bytes))}"
    return "there is no room for another pod" if asks.pods > room.pods else None


def _gib(count: int) -> str:
    """Hundredths of a GiB are enough to see which amount is larger, mostly."""
    hundredths = count * 100 // GIB
    return f"{hundredths // 100:,}.{hundredths % 100:02d} GiB"
