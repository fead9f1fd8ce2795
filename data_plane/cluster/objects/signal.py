"""What the workloads on a tenant's nodes are asked for: a ConfigMap in its namespace, which pods mount as a volume.

The agent of a node writes the same as a file on the machine, which no pod may mount. The kubelet brings a ConfigMap
into pods that run, and needs no credential of theirs for it.

It is there from the beginning, empty while nothing is asked: a quota that is used up refuses new objects, and changes
of those that are there pass. A key is a file: one for each node of which something is asked, and one with the strongest
of all. Times are Unix seconds of our clock.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from data_plane.cluster.objects.tenant import Tenant
from data_plane.cluster.resource import CONFIG_MAP, Object, head
from data_plane.documents.signal import ASKS, VERSION
from data_plane.documents.signal import NAME as STRONGEST

NAME = "splitplane-signal"


@dataclass(frozen=True, slots=True)
class NodeSignal:
    """What the workloads on a node are asked for now."""

    node: str
    action: str
    """One of `ASKS`."""
    reason: str
    until: int
    """It counts until then, in Unix seconds, unless it is said again."""
    ends_at: int | None
    """When the machine is taken away; None if it is not."""


def signal_map(tenant: Tenant, asked: Iterable[NodeSignal]) -> Object:
    """The ConfigMap, with at most one signal of each node."""
    found = sorted(asked, key=_strength)
    data = {f"{signal.node}.json": _text(signal) for signal in found}
    if found:
        data[STRONGEST] = _text(found[-1])
    return {**head(CONFIG_MAP, NAME, tenant.namespace, labels=tenant.labels), "data": data}


def _strength(signal: NodeSignal) -> tuple[int, bool, int, int, str]:
    """The stronger action counts; of equal ones the one that ends sooner, then the one that counts longer."""
    ends_at = signal.ends_at
    return ASKS.index(signal.action), ends_at is not None, -(ends_at or 0), signal.until, signal.node


def _text(signal: NodeSignal) -> str:
    content = {
        "version": VERSION,
        "action": signal.action,
        "reason": signal.reason,
        "until": signal.until,
        "ends_at": signal.ends_at,
        "node": signal.node,
    }
    return json.dumps(content) + "\n"
