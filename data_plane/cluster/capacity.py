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
    devices: dict[str, int]
    """Extended resources, such as `nvidia.com/gpu`."""


def claimed_capacity(node: Object) -> ClaimedCapacity:
    """Raises ValueError for what is no quantity.

    The greater one of capacity and allocatable counts: the scheduler goes by the latter, and a node sets each freely.
    """
    status = node.get("status", {})
    claims = [status.get("capacity") or {}, status.get("allocatable") or {}]
    names = {name for claim in claims for name in claim}
    most = {name: max(_amount(claim.get(name, "0")) for claim in claims) for name in names}
    devices = {name: _whole(most[name]) for name in names if not _is_of_the_kubelet(name)}
    cpu, memory = most.get("cpu", Decimal(0)), most.get("memory", Decimal(0))
    return ClaimedCapacity(_whole(cpu * 1000), _whole(memory), devices)


def allocatable(node: Object, device: str) -> int:
    """How many devices of a kind pods can get, as the node reports it; 0 for what is no quantity."""
    told = (node.get("status", {}).get("allocatable") or {}).get(device, "0")
    try:
        return int(_amount(told))
    except (ValueError, ArithmeticError):
        return 0


def _amount(text: str) -> Decimal:
    amount = parse_quantity(text)
    if amount is None:
        raise ValueError(f"{text!r} is no quantity")
    return amount


def _whole(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))


def _is_of_the_kubelet(name: str) -> bool:
    return name in _OF_THE_KUBELET or name.startswith(("hugepages-", "attachable-volumes-"))
