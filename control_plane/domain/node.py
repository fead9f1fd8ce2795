"""The state machine of a node: a verified machine on its way into a cluster, in it, and out of it.

    JOINING --admitted--> READY --leave--> LEAVING --left--> GONE
       `------- leave, failed, hostile ------^

A node is a machine in a cluster; buying the machine and ending it are the machine's own states (`machine.py`). A
machine becomes a node when it is verified, before any customer's work runs on it, and stays a node until nothing of the
cluster is left on it. It joins and leaves by steps, each with stored evidence: whoever takes the node over after a
crash goes on at the first step without evidence, and each step may be repeated.

A node is trusted with nothing. It joins with a taint that keeps pods away, and what it says of itself
(labels, capacity) is compared with what was bought before the taint goes (`node_capacity.py`). One that lied leaves as
hostile: its tunnels are cut before it could notice anything else.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.failure import FailReason
from control_plane.domain.ids import (
    ClaimId,
    ClusterId,
    LeaseId,
    MachineId,
    NodeId,
    NodePoolId,
    OrganizationId,
    ProjectId,
)
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class NodeState(StrEnum):
    JOINING = "joining"
    """It is being prepared. It may be registered in the cluster, with a taint that keeps pods away."""
    READY = "ready"
    """Pods may run on it."""
    LEAVING = "leaving"
    """It is being taken out of the cluster."""
    GONE = "gone"
    """No tunnel and no Node object of it is left. Its machine may still be about to end. Kubernetes cannot revoke the
    certificate of a kubelet, so one that a hostile machine kept is accepted until it ends (docs/security.md)."""


class NodeEvent(StrEnum):
    ADMITTED = "admitted"
    """It passed every check, and its lease begins. Its taint is removed next."""
    LEAVE = "leave"
    """It is not needed any more: its lease ended, its pool shrank, or its cluster is being deleted. Or its machine is
    taken away, because it is not healthy or was announced to go."""
    FAILED = "failed"
    """It did not join in time, or a step failed too often."""
    LOST = "lost"
    """It is not ready any more, and its machine is gone according to the provider, or stayed away too long."""
    HOSTILE = "hostile"
    """It claims more than was bought, or its GPUs failed their proof."""
    LEFT = "left"
    """Every step of leaving has its evidence."""


class JoinStep(StrEnum):
    """The steps of joining, in their order."""

    PREPARED = "prepared"
    """The K3s files are there, by digest, and the kernel's settings are those that the kubelet insists on."""
    TUNNELLED = "tunnelled"
    """It made its WireGuard key, and a server of the cluster answered through the tunnel."""
    STARTED = "started"
    """Its agent runs, with a token of its own that lasts minutes."""
    REGISTERED = "registered"
    """Its Node object is there, with our taint, and its token is deleted."""
    MEASURED = "measured"
    """What it claims to have is what was bought."""
    HEALTHY = "healthy"
    """The kubelet is ready, and its conditions show no pressure."""
    OPENED = "opened"
    """Its lease has begun. Then its labels were set, and the taint that kept pods away was removed, in one request."""


class LeaveStep(StrEnum):
    """The steps of leaving. `leaving` says in which order."""

    CORDONED = "cordoned"
    """No new pod is scheduled on it."""
    DRAINED = "drained"
    """Its pods were evicted; those that did not go in time were killed, and are named in the evidence."""
    CUT_OFF = "cut_off"
    """No other member of the overlay has its key."""
    DELETED = "deleted"
    """Its Node object, its password secret and its bootstrap token are deleted."""
    CLEANED = "cleaned"
    """Nothing of the cluster is left on the machine, or the machine is gone."""


class LeaveReason(StrEnum):
    LEASE_ENDED = "lease_ended"
    """Somebody ended its lease: its pool shrank or was deleted, or its cluster is being deleted."""
    FAILED = "failed"
    """It did not join."""
    LOST = "lost"
    """Nobody reaches it, or its machine is gone."""
    TAKEN_AWAY = "taken_away"
    """Its machine has a fault that we saw ourselves, or was announced to go. It runs, so its pods have time to go."""
    HOSTILE = "hostile"
    """It claims what it does not have."""


_S = NodeState
_E = NodeEvent

NEXT: dict[tuple[NodeState, NodeEvent], NodeState] = {
    (_S.JOINING, _E.ADMITTED): _S.READY,
    (_S.JOINING, _E.LEAVE): _S.LEAVING,
    (_S.JOINING, _E.FAILED): _S.LEAVING,
    (_S.JOINING, _E.LOST): _S.LEAVING,
    (_S.JOINING, _E.HOSTILE): _S.LEAVING,
    (_S.READY, _E.LEAVE): _S.LEAVING,
    (_S.READY, _E.LOST): _S.LEAVING,
    (_S.READY, _E.HOSTILE): _S.LEAVING,
    (_S.LEAVING, _E.LEFT): _S.GONE,
}

IN_CLUSTER = frozenset({_S.JOINING, _S.READY, _S.LEAVING})
"""States in which the cluster may hold something of the node."""
TERMINAL = frozenset({_S.GONE})

JOIN_MAX = timedelta(minutes=20)
"""How long a machine may take to become healthy in its cluster. Waiting for the rest of its pool does not count, nor
does the time in which files arrive there fast enough (`node_files.py`)."""
STEP_TRIES_MAX = 5
"""How often a step of joining may fail on a machine that answers."""
JOINS_IN_FLIGHT_MAX = 8
"""How many agents of a cluster join at once: K3s answers 10 writing requests of agents at a time, and lets the others
retry."""
DRAIN_MAX = timedelta(minutes=5)
"""How long pods have to go by themselves."""
CLUSTER_SIDE_MAX = timedelta(minutes=15)
"""How long after it began to leave a step of leaving is retried that fails. Then it is given up and noted, because the
machine costs money all that time, whether or not a cluster answers."""
CUT_OFF_MAX = timedelta(minutes=5)
"""How long members have at least to forget a node's key, however long the steps before it took."""
OPEN_MAX = timedelta(minutes=10)
"""How long after its lease began the taint of a node may stay. Then the node has failed, and none of it is billed."""
LEAVE_MAX = timedelta(minutes=30)
"""How long a machine is kept for its node to leave. It is the last resort, for when nobody works on the node."""

_L = LeaveStep
_ORDERLY = (_L.CORDONED, _L.DRAINED, _L.CUT_OFF, _L.DELETED, _L.CLEANED)
_AT_ONCE = (_L.CUT_OFF, _L.DELETED, _L.CLEANED)


def step(state: NodeState, event: NodeEvent) -> Moved[NodeState, NodeEvent] | Ignored[NodeState, NodeEvent]:
    return step_table(NEXT, state, event)


def next_join_step(taken: Collection[JoinStep]) -> JoinStep | None:
    """The first step of joining without evidence; None when all have it."""
    return next((each for each in JoinStep if each not in taken), None)


def leaving(reason: LeaveReason) -> tuple[LeaveStep, ...]:
    """The steps of leaving, in their order.

    A node is cut off before its Node is deleted: an agent that runs on would register again through its tunnel. One
    that nobody can reach or trust is cut off first: draining would ask it to cooperate.
    """
    return _AT_ONCE if reason in {LeaveReason.HOSTILE, LeaveReason.LOST} else _ORDERLY


def next_leave_step(reason: LeaveReason, taken: Collection[LeaveStep]) -> LeaveStep | None:
    """The first step of leaving without evidence; None when all have it."""
    return next((each for each in leaving(reason) if each not in taken), None)


def may_open(*, pool_was_ready: bool, wanted: int, healthy: int) -> bool:
    """Whether the healthy nodes of a pool may be opened: all or none, until the pool was ready once."""
    return pool_was_ready or healthy >= wanted


_LIED = frozenset({FailReason.NODE_HOSTILE, FailReason.PROOF_FAILED, FailReason.PROOF_EMULATED})


def reason_to_leave(fail_reason: FailReason | None, *, machine_is_gone: bool) -> LeaveReason:
    """Why a node leaves whose claim has ended. `fail_reason` is that of its machine."""
    if fail_reason in _LIED:
        return LeaveReason.HOSTILE
    if fail_reason is FailReason.UNHEALTHY and not machine_is_gone:
        return LeaveReason.TAKEN_AWAY
    if fail_reason is not None or machine_is_gone:
        return LeaveReason.LOST
    return LeaveReason.LEASE_ENDED


FAILING = "the step in progress failed, and is tried again"
"""What customers read of a step that failed. What it said are words of the machine, or of ours for operators."""


def why_it_leaves(reason: LeaveReason) -> str:
    """What customers read of a node that leaves."""
    match reason:
        case LeaveReason.LEASE_ENDED:
            return "its lease has ended"
        case LeaveReason.FAILED:
            return "it did not become a healthy node of the cluster"
        case LeaveReason.LOST:
            return "it was not ready for too long, or its machine is gone"
        case LeaveReason.TAKEN_AWAY:
            return "its machine is not healthy, or was announced to go"
        case LeaveReason.HOSTILE:
            return "it claimed what it does not have"


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it is stored now."""

    id: NodeId
    organization_id: OrganizationId
    project_id: ProjectId
    cluster_id: ClusterId
    node_pool_id: NodePoolId
    lease_id: LeaseId
    claim_id: ClaimId
    """The claim of its lease on its machine, which begins and ends the node."""
    machine_id: MachineId
    name: str
    """Its name in the cluster."""
    state: NodeState
    generation: int
    tries: int
    """Failed tries of the step in progress."""
    number: int
    """Its place in the overlay of its cluster, from which its address follows."""
    public_key: str | None
    """Its WireGuard key; None before it made one."""
    next_key: str | None
    """The key that it changes to."""
    endpoint: str | None
    """`host:port` at which it can be reached from outside; None behind NAT, and before it is known."""
    pod_block: int | None
    """Which range of addresses its pods have; None before the cluster assigned one."""
    uid: str | None
    """The uid of its Node object; None before it registered."""
    leave_reason: LeaveReason | None
    leave_why: str | None
    """Why it leaves, as a sentence; None while it does not."""
    failing_why: str | None
    """Why the step in progress failed the last time."""
    due_at: datetime
    """When it was to be looked at. Much later than that, an outage of ours kept us from it."""
    created_at: datetime
    deadline_at: datetime
    """By when it has to be healthy (`node_deadline.py`)."""
    ready_at: datetime | None
    unready_since: datetime | None
    """Since when the cluster says that it is not ready; None while it is, and before it was healthy once."""
    leaving_at: datetime | None
    removed_at: datetime | None
    """Since when it is in nobody's peer map any more."""
    gone_at: datetime | None


def name_of(node_id: NodeId) -> str:
    """The name of a node in its cluster: a DNS label that never names another machine."""
    return f"node-{node_id.hex}"
