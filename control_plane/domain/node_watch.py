"""Which open nodes of a cluster are given up, after one look at all of them.

Losing contact is not failure (law 5): a node that is not ready may only be cut off from us, while its customer's pods
run on. So one is lost only when its provider does not list its machine any more either, or after a long time. While all
nodes of the cluster are unready, the trouble is more likely ours, and none is lost that its provider lists. A node that
claims more than was bought is hostile at once; when several do at the same time, what they are compared with is more
likely wrong. Whatever is found, a run ends few nodes of a cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.failure import FailReason
from control_plane.domain.ids import NodeId
from control_plane.domain.machine import MachineEvent, MachineFailure
from control_plane.domain.node_health import Unready

UNREADY_GRACE = timedelta(minutes=5)
"""How long a node has to be unready before it is lost, where its provider does not list its machine."""
UNREADY_MAX = timedelta(hours=1)
"""How long a node may stay unready whose machine its provider lists."""
LOST_PER_RUN_MAX = 2
LIARS_MAX = 2
"""So many nodes of a cluster may lie at once. When more do, none of them is ended, and an operator has to look."""


@dataclass(frozen=True, slots=True)
class OpenNode:
    """An open node, as one look found it."""

    id: NodeId
    name: str
    lie: str | None
    """What it claims that is not so, as a sentence."""
    unready: Unready | None
    missed_since: datetime | None
    """Since when its provider's complete lists do not show its machine; None while they do."""


@dataclass(frozen=True, slots=True)
class Decision:
    given_up: Sequence[tuple[NodeId, MachineFailure]]
    frozen: Sequence[str]
    """Why nodes are kept that would be given up otherwise. Operators read it."""


def decide(nodes: Sequence[OpenNode], now: datetime) -> Decision:
    """What to do about the open nodes of a cluster. `nodes` are all of them."""
    hostile, frozen = _liars(nodes, now)
    all_unready = all(node.unready is not None for node in nodes)
    judged = [node for node in nodes if not all_unready or node.missed_since is not None]
    lost = [each for each in _lost(judged, now) if each[0] not in {node_id for node_id, _ in hostile}]
    if all_unready and len(judged) < len(nodes) and _is_long(nodes, now):
        frozen = [*frozen, "every node is unready, so none is given up that its provider lists"]
    return Decision([*hostile, *lost[:LOST_PER_RUN_MAX]], frozen)


_GivenUp = tuple[NodeId, MachineFailure]


def _liars(nodes: Sequence[OpenNode], now: datetime) -> tuple[list[_GivenUp], list[str]]:
    """Nodes that are hostile, and why none is although some seem to be."""
    liars = [(node, node.lie) for node in nodes if node.lie is not None]
    if len(liars) > LIARS_MAX:
        node, lie = liars[0]
        return [], [f"{len(liars)} nodes seem to lie, so none is ended; {node.name}: {lie}"]
    event, reason = MachineEvent.DISPROVEN, FailReason.NODE_HOSTILE
    return [(node.id, MachineFailure(event, reason, lie, failed_since=now)) for node, lie in liars], []


def _lost(nodes: Sequence[OpenNode], now: datetime) -> list[_GivenUp]:
    """The nodes that are lost, the longest unready first."""
    found = []
    for node in nodes:
        why = node.unready and _lost_why(node.unready, node.missed_since, now)
        if node.unready is not None and why:
            event, reason = MachineEvent.FAILED, FailReason.NODE_LOST
            failure = MachineFailure(event, reason, why, failed_since=node.unready.silent_since)
            found.append((node.unready.since, node.id, failure))
    return [(node_id, failure) for _, node_id, failure in sorted(found, key=lambda each: each[:2])]


def _is_long(nodes: Sequence[OpenNode], now: datetime) -> bool:
    return any(node.unready is not None and now - node.unready.since >= UNREADY_GRACE for node in nodes)


def _lost_why(unready: Unready, missed_since: datetime | None, now: datetime) -> str | None:
    lasted = now - unready.since
    minutes = int(lasted.total_seconds() // 60)
    if missed_since is not None and lasted >= UNREADY_GRACE:
        return f"its node was not ready for {minutes} min, and its provider does not list it: {unready.why}"
    if lasted >= UNREADY_MAX:
        return f"its node was not ready for {minutes} min: {unready.why}"
    return None
