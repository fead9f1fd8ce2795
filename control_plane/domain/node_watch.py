"""Which open nodes of a cluster are given up, after one look at all of them (docs/decisions/0057).

Losing contact is not failure (law 5): a node that is not ready may only be cut off from us, while its customer's pods
run on. So one is lost only when its provider does not list its machine any more either, or after a long time.

While all nodes of the cluster are unready, the trouble may be ours. Then one that its provider lists is lost only for
what we see ourselves (`Reach`): when neither the cluster's server nor we reach its machine, or when it is alone in its
cluster and the server hears it, so that its own K3s must be broken. In the same way, nodes without GPUs are lost only
while another node of the cluster gives pods all of its GPUs.

A node that claims more than was bought is hostile at once; when several of one provider account do at the same time,
what they are compared with is more likely wrong. They are kept, and new pods are kept away from them. Whatever is
found, a run ends few nodes of a cluster.
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
REACHED_PER_RUN_MAX = 8
"""So many machines of a cluster are asked in a run whether we reach them."""
LIARS_MAX = 2
"""So many nodes of a cluster at one provider account may lie at once. When more do, none of them is ended, and an
operator has to look."""
HOSTILE_PER_RUN_MAX = 4
"""So many of them a run ends, of all accounts together: what all nodes are compared with may be wrong as well."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What we see of a node ourselves, while the host of its cluster's server answers us."""

    heard: bool
    """Whether that server had a handshake with it lately."""
    answers: bool
    """Whether its machine answers us by SSH."""


@dataclass(frozen=True, slots=True)
class OpenNode:
    """An open node, as one look found it."""

    id: NodeId
    name: str
    account: str
    """The provider account of its machine."""
    lie: str | None
    """What it claims that is not so, as a sentence."""
    unready: Unready | None
    missed_since: datetime | None
    """Since when its provider's complete lists do not show its machine; None while they do."""
    gives_gpus: bool = False
    """Whether it was sold with GPUs, and is ready to give pods all of them."""
    reach: Reach | None = None
    """None while nobody looked (`to_reach`), and while the server's host does not answer us."""


@dataclass(frozen=True, slots=True)
class Decision:
    given_up: Sequence[tuple[NodeId, MachineFailure]]
    frozen: Sequence[str]
    """Why nodes are kept that would be given up otherwise. Operators read it."""
    quarantined: frozenset[NodeId] = frozenset()
    """Nodes that seem to lie and are kept, or have to wait for a later run. They get no new pods."""


def to_reach(nodes: Sequence[OpenNode], now: datetime) -> tuple[NodeId, ...]:
    """The nodes that `decide` needs the reach of, the longest unready first."""
    if not _all_unready(nodes):
        return ()
    overdue = [
        (node.unready.since, node.id)
        for node in nodes
        if node.unready is not None and node.missed_since is None and now - node.unready.since >= UNREADY_MAX
    ]
    return tuple(node_id for _, node_id in sorted(overdue)[:REACHED_PER_RUN_MAX])


def decide(nodes: Sequence[OpenNode], now: datetime) -> Decision:
    """What to do about the open nodes of a cluster. `nodes` are all of them."""
    hostile, kept, frozen = _liars(nodes, now)
    quarantined = kept | {node_id for node_id, _ in hostile[HOSTILE_PER_RUN_MAX:]}
    judged = [node for node in nodes if _may_be_lost(node, nodes)]
    liars = quarantined | {node_id for node_id, _ in hostile}
    lost = [each for each in _lost(judged, now) if each[0] not in liars]
    given_up = [*hostile[:HOSTILE_PER_RUN_MAX], *lost[:LOST_PER_RUN_MAX]]
    return Decision(given_up, [*frozen, *_kept_why(nodes, judged, now)], quarantined)


def _all_unready(nodes: Sequence[OpenNode]) -> bool:
    return all(node.unready is not None for node in nodes)


def _may_be_lost(node: OpenNode, nodes: Sequence[OpenNode]) -> bool:
    """Whether time alone decides about a node that is not ready."""
    if node.unready is None or node.missed_since is not None:
        return True
    if node.unready.only_gpus:
        return any(other.gives_gpus for other in nodes)
    return not _all_unready(nodes) or _is_broken(node, is_alone=len(nodes) == 1)


def _is_broken(node: OpenNode, *, is_alone: bool) -> bool:
    """Whether what we see ourselves says that the trouble is not ours."""
    if node.reach is None:
        return False
    return is_alone if node.reach.heard else not node.reach.answers


def _kept_why(nodes: Sequence[OpenNode], judged: Sequence[OpenNode], now: datetime) -> list[str]:
    """Why nodes are kept that are not ready for long."""
    kept = [node for node in nodes if node not in judged and _is_long(node, now)]
    found = []
    if any(node.unready is not None and node.unready.only_gpus for node in kept):
        found.append(
            "no node gives pods its GPUs, so the device plugin may be at fault, and none is given up"
        )
    if any(node.unready is not None and not node.unready.only_gpus for node in kept):
        found.append(
            "every node is unready, so none is given up that its provider lists and somebody reaches"
        )
    return found


_GivenUp = tuple[NodeId, MachineFailure]


def _liars(nodes: Sequence[OpenNode], now: datetime) -> tuple[list[_GivenUp], frozenset[NodeId], list[str]]:
    """Nodes that are hostile, those that are kept although they seem to be, and why."""
    of_account: dict[str, list[tuple[OpenNode, str]]] = {}
    for node in nodes:
        if node.lie is not None:
            of_account.setdefault(node.account, []).append((node, node.lie))
    hostile, kept, why = list[_GivenUp](), set[NodeId](), list[str]()
    for account, liars in of_account.items():
        if len(liars) > LIARS_MAX:
            node, lie = liars[0]
            kept.update(each.id for each, _ in liars)
            why.append(
                f"{len(liars)} nodes at {account} seem to lie, so none is ended, and they get no new pods;"
                f" {node.name}: {lie}"
            )
            continue
        event, reason = MachineEvent.DISPROVEN, FailReason.NODE_HOSTILE
        hostile += [(each.id, MachineFailure(event, reason, lie, failed_since=now)) for each, lie in liars]
    return hostile, frozenset(kept), why


def _lost(nodes: Sequence[OpenNode], now: datetime) -> list[_GivenUp]:
    """The nodes that are lost, the longest unready first."""
    found = []
    for node in nodes:
        why = node.unready and _lost_why(node.unready, node.missed_since, now)
        if node.unready is not None and why:
            event, reason = MachineEvent.FAILED, FailReason.NODE_LOST
            failure = MachineFailure(event, reason, why, failed_since=node.unready.since)
            found.append((node.unready.since, node.id, failure))
    return [(node_id, failure) for _, node_id, failure in sorted(found, key=lambda each: each[:2])]


def _is_long(node: OpenNode, now: datetime) -> bool:
    return node.unready is not None and now - node.unready.since >= UNREADY_GRACE


def _lost_why(unready: Unready, missed_since: datetime | None, now: datetime) -> str | None:
    lasted = now - unready.since
    minutes = int(lasted.total_seconds() // 60)
    if missed_since is not None and lasted >= UNREADY_GRACE:
        return f"its node was not ready for {minutes} min, and its provider does not list it: {unready.why}"
    if lasted >= UNREADY_MAX:
        return f"its node was not ready for {minutes} min: {unready.why}"
    return None
