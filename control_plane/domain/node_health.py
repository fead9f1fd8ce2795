"""What the conditions of a Node mean: whether it may be opened, and whether its kubelet reports to the API server.

Pressure keeps a node from being opened, and says nothing about whether it is lost: the pods of its own customer can
fill its disk. An open node is paid for as long as our API server says that it is ready. A kubelet that reports `False`
and one that is silent (`Unknown`, which a controller of the cluster writes) are the same: there is no evidence that
pods can run (docs/decisions/0057).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

GPUS_MISSING = "GpusMissing"
"""The condition of a node on which pods cannot have all GPUs that were sold. It is ours."""
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def problem(conditions: Mapping[str, str]) -> str | None:
    """Why a node with these conditions is not opened, as a sentence; None when it may be."""
    if conditions.get("Ready") != "True":
        return f"its kubelet is not ready ({conditions.get('Ready', 'it did not say')})"
    found = [name for name in _PRESSURES if conditions.get(name) == "True"]
    return f"it reports {', '.join(found)}" if found else None


def gpu_problem(*, allocatable: int, sold: int) -> str | None:
    """Why a node whose pods are to use GPUs is not opened, as a sentence; None when they can have all of them."""
    if allocatable >= sold:
        return None
    return f"its device plugin reports {allocatable} of {sold} {'GPU' if sold == 1 else 'GPUs'}"


@dataclass(frozen=True, slots=True)
class Unready:
    """An open node that is not ready, or that gives pods no GPUs, at one look."""

    since: datetime
    """When the first look that found it so was taken. Every look since then did."""
    why: str
    only_gpus: bool = False
    """Whether it is ready, and only lacks GPUs, for which our device plugin may be to blame."""


def unready(
    conditions: Mapping[str, str] | None,
    *,
    gpu_problem: str | None,
    since: datetime | None,
    now: datetime,
) -> Unready | None:
    """What a look at an open node found; None when it is ready. `conditions` is None when it has no Node.

    `since` is what the look before found.
    """
    if conditions is None:
        return Unready(since or now, "its Node was deleted")
    match conditions.get("Ready"):
        case "True":
            return None if gpu_problem is None else Unready(since or now, gpu_problem, only_gpus=True)
        case "False":
            return Unready(since or now, "its kubelet reports that it is not ready")
        case _:
            return Unready(since or now, "its kubelet is silent")
