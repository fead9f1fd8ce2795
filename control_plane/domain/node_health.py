"""What the conditions of a Node mean: whether it may be opened, and when one that was open is lost.

A node that is not ready may only be cut off from us, while the customer's pods run on (law 5). So it is given up only
when its provider does not list the machine any more either, or after a long time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

UNREADY_GRACE = timedelta(minutes=5)
"""How long a node has to be unready before it is lost, where its provider does not list its machine."""
UNREADY_MAX = timedelta(hours=1)
"""How long a node may stay unready whose machine its provider lists."""
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def problem(conditions: Mapping[str, str]) -> str | None:
    """Why a node with these conditions cannot take pods, as a sentence; None when it can."""
    if conditions.get("Ready") != "True":
        return f"its kubelet is not ready ({conditions.get('Ready', 'it did not say')})"
    found = [name for name in _PRESSURES if conditions.get(name) == "True"]
    return f"it reports {', '.join(found)}" if found else None


@dataclass(frozen=True, slots=True)
class Lost:
    why: str


def lost(unready_since: datetime, missed_since: datetime | None, now: datetime) -> Lost | None:
    """Whether a node is lost that has been unready since then.

    `missed_since`: since when its provider's complete lists do not show its machine; None while they do.
    """
    unready = now - unready_since
    minutes = int(unready.total_seconds() // 60)
    if missed_since is not None and unready >= UNREADY_GRACE:
        return Lost(f"its node was not ready for {minutes} min, and its provider does not list it")
    if unready >= UNREADY_MAX:
        return Lost(f"its node was not ready for {minutes} min")
    return None
