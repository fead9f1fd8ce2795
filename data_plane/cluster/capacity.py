"""What a Node says it has, in numbers."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from lightkube.utils.quantity import parse_quantity

from data_plane.cluster.resource import Object

_OF_THE_KUBELET = ("cpu", "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True)
class ClaimedCapacity:
    """As the node reports it. Nothing here is checked."""

    cpu_millis: int
    memory_bytes: int
    """With what is set aside as huge pages."""
    devices: dict[str, int]
    """Extended resources, such as `nvidia.com/gpu`."""
    pods: int
    disk_bytes: int
    """The file system of pods (`ephemeral-storage`)."""


def claimed_capacity(node: Object) -> ClaimedCapacity:
    """Raises ValueError for what is no quantity.

    The greater one of capacity and allocatable counts: the scheduler goes by the latter, and a node sets each freely.
    """
    status = node.get("status", {})
    claims = [status.get("capacity") or {}, status.get("allocatable") or {}]
    names = {name for claim in claims for name in claim}
    most = {name: max(_amount(claim.get(name, "0")) for claim in claims) for name in names}
    devices = {name: _whole(most[name]) for name in names if not _is_of_the_kubelet(name)}
    cpu, pods, disk = (most.get(name, Decimal(0)) for name in ("cpu", "pods", "ephemeral-storage"))
    memory = _whole(_memory(claims, most))
    return ClaimedCapacity(_whole(cpu * 1000), memory, devices, _whole(pods), _whole(disk))


def _memory(claims: list[dict[str, str]], most: dict[str, Decimal]) -> Decimal:
    """A kubelet counts huge pages as a part of its capacity, and takes them off what is allocatable. So memory that is
    allocatable and huge pages add up.
    """
    huge = sum((amount for name, amount in most.items() if name.startswith("hugepages-")), Decimal(0))
    allocatable = claims[1].get("memory", claims[0].get("memory", "0"))
    return max(most.get("memory", Decimal(0)), _amount(allocatable) + huge)


def allocatable(node: Object, device: str) -> int:
    """How many devices of a kind pods can get, as the node reports it; 0 for what is no quantity."""
    told = (node.get("status", {}).get("allocatable") or {}).get(device, "0")
    try:
        return int(_amount(told))
    except (ValueError, ArithmeticError):
        return 0


def whole_amount(text: str, times: int = 1) -> int:
    """A quantity of Kubernetes so many times, rounded up. Raises ValueError for what is none."""
    return _whole(_amount(text) * times)


def _amount(text: str) -> Decimal:
    amount = parse_quantity(text)
    if amount is None:
        raise ValueError(f"{text!r} is no quantity")
    return amount


def _whole(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))


def _is_of_the_kubelet(name: str) -> bool:
    return name in _OF_THE_KUBELET or name.startswith(("hugepages-", "attachable-volumes-"))
