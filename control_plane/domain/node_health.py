"""What the conditions of a Node mean: whether it may be opened, and whether its kubelet reports to the API server.

Pressure keeps a node from being opened, and says nothing about whether it is lost: the pods of its own customer can
fill its disk. What the kubelet says (`False`) and its silence (`Unknown`, which a controller of the cluster writes) are
kept apart, because only silence moves money (`node_watch.py`).
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
    """An open node that is not ready, at one look."""

    since: datetime
    """When the first look that found it so was taken. Every look since then did."""
    silent_since: datetime | None
    """The same for its kubelet's silence; None while it reports that it is not ready."""
    why: str


def unready(
    conditions: Mapping[str, str] | None,
    *,
    since: datetime | None,
    silent_since: datetime | None,
    now: datetime,
) -> Unready | None:
    """What a look at an open node found; None when it is ready. `conditions` is None when it has no Node.

    `since` and `silent_since` are what the look before found.
    """
    if conditions is None:
        return Unready(since or now, silent_since or now, "its Node was deleted")
    ready = conditions.get("Ready")
    if ready == "True":
        return None
    if ready == "False":
        return Unready(since or now, None, "its kubelet reports that it is not ready")
    return Unready(since or now, silent_since or now, "its kubelet is silent")
