"""Nodes on the wire: rented machines in a Kubernetes cluster, and what operators see of them besides."""

from typing import Annotated, Any

from control_plane.wire.agents import LeaseAgentView
from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import (
    ClusterIdText,
    GpuModelWord,
    LeaseIdText,
    MachineIdText,
    NodeIdText,
    NodePoolIdText,
    OrganizationIdText,
    ProjectIdText,
    one_of,
)

NodeStateWord = Annotated[
    str,
    one_of(
        "NodeState",
        "What becomes of a node.",
        joining="It is being prepared. It may be registered already, with a taint that keeps pods away.",
        ready="Pods of its project may run on it.",
        leaving="It is being taken out of the cluster.",
        gone="Nothing of it is left in the cluster.",
    ),
]
LeaveReasonWord = Annotated[
    str,
    one_of(
        "LeaveReason",
        "Why a node leaves its cluster.",
        lease_ended="Its lease ended: it was not wanted any more, or could not be paid.",
        failed="It did not become healthy in its cluster.",
        lost="It was not ready for long, or its machine is gone. Its pool replaces it.",
        taken_away="Its machine is not healthy, or was announced to go; pods had time to end. Its pool replaces it.",
        hostile="It claimed what it does not have. Its pool replaces it.",
    ),
]
NodeStepWord = Annotated[
    str,
    one_of(
        "NodeStep",
        "A step into a cluster, up to `opened`, or out of it.",
        prepared="K3s is on the machine.",
        tunnelled="The server of its cluster answers through its tunnels.",
        started="K3s runs on it.",
        registered="It is registered, and closed to pods.",
        measured="It has what was sold.",
        healthy="It is healthy, and waits until its node pool can open it.",
        opened="Its labels are set, and it is open for pods.",
        cordoned="No new pod is scheduled on it.",
        drained="Its pods are gone.",
        deleted="The cluster does not know it any more.",
        cut_off="No other machine has its key any more, so nothing reaches it through a tunnel.",
        cleaned="Nothing of the cluster is left on the machine, or the machine is gone.",
    ),
]


class NodeStepView(View):
    """A step that a node has taken."""

    step: NodeStepWord
    """The step."""
    at: Timestamp
    """When its evidence was stored."""


class NodeView(View, kw_only=True):
    """A node: a rented machine in a Kubernetes cluster, of a node pool. It is one lease."""

    id: NodeIdText
    """The id of the node."""
    name: str
    """Its name in the cluster."""
    cluster: str
    """The name of its cluster."""
    cluster_id: ClusterIdText
    """The id of its cluster."""
    node_pool: str
    """The name of its node pool."""
    node_pool_id: NodePoolIdText
    """The id of its node pool."""
    project: str
    """The name of the project whose pods run on it."""
    project_id: ProjectIdText
    """The id of that project."""
    lease: str
    """The name of its lease."""
    lease_id: LeaseIdText
    """The id of its lease."""
    machine_id: MachineIdText
    """The id of its machine."""
    gpu_model: GpuModelWord | None
    """The model of its GPUs; null when it has none."""
    gpu_count: int
    """How many GPUs it has; 0 for a machine without GPUs."""
    state: NodeStateWord
    """Its state."""
    steps: tuple[NodeStepView, ...]
    """The steps that it has taken into the cluster and out of it, in their order."""
    failing_why: str | None
    """That the step in progress failed the last time; null when it did not. Operators find in the log what it said."""
    conditions: dict[str, str]
    """Its conditions by type, as its cluster last told them: `True`, `False` or `Unknown`. They are the node's word.
    Two are ours: `TunnelProblem`, packets are lost between it and the cluster's server, and `GpusMissing`, pods cannot
    have all of its GPUs."""
    agent: LeaseAgentView | None = None
    """What the agent on its machine reported last; null before there is one."""
    leave_reason: LeaveReasonWord | None = None
    """Why it leaves, as a word; null while it does not."""
    leave_why: str | None
    """Why it leaves, as a sentence; null while it does not."""
    created_at: Timestamp
    """When it began to join."""
    ready_at: Timestamp | None
    """When it was opened for pods; null before."""
    unready_since: Timestamp | None
    """Since when the cluster says that it is not ready; null while it is, and before it was."""
    leaving_at: Timestamp | None = None
    """When it began to leave; null before."""
    gone_at: Timestamp | None
    """When nothing of it was left in the cluster; null before."""


class NodePage(View):
    """A page of nodes."""

    items: tuple[NodeView, ...]
    """The nodes, newest first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""


class StepEvidenceView(View):
    """What was stored when a node had taken a step."""

    step: NodeStepWord
    """The step."""
    at: Timestamp
    """When it was stored."""
    says: str
    """The evidence as a phrase."""
    given_up: bool
    """Whether the step was given up, so that its machine could end."""
    evidence: dict[str, Any]
    """The evidence as it is stored. Some of it is the machine's own word."""


class SoldCapacityView(View):
    """What was bought for a node."""

    vcpus: int
    """Virtual CPUs."""
    memory_gib: int
    """Memory in GiB."""
    gpus: int
    """How many GPUs."""


class NodeReportView(View, kw_only=True):
    """A node as operators see it: with the evidence of its steps, and whose it is."""

    id: NodeIdText
    """The id of the node."""
    node: NodeView
    """The node, as its customer sees it."""
    organization: str
    """The name of the organization whose pods run on it."""
    organization_id: OrganizationIdText
    """The id of that organization."""
    account: str
    """The provider account that its machine was bought with."""
    address: str | None
    """The machine's public address; null before it has one."""
    evidence: tuple[StepEvidenceView, ...]
    """What is stored of each step, in their order."""
    sold: SoldCapacityView
    """What was bought."""
    claims: dict[str, str]
    """What it says that it has, as its cluster told it last: resources of Kubernetes, such as `cpu`."""
    version: str | None
    """The version of its kubelet, as its cluster told it last; null before it registered."""
    overlay_number: int
    """Its place in the overlay of its cluster, from which its address there follows."""
    endpoint: str | None
    """Where its tunnels can be reached from outside; null behind NAT, and before that is known."""
    tunnels_read_at: Timestamp | None
    """When its tunnels were last read, and put right; null before."""
    server_handshake_at: Timestamp | None
    """When its tunnel with the server of its cluster last had a handshake, as its machine said when its tunnels were
    read; null before, and when it had none. A tunnel that carries packets has one every two minutes."""
    key_holders: int | None
    """How many other members of the overlay may still have its key; null before it has to go."""
    key_change_requested_at: Timestamp | None = None
    """When an operator asked for another WireGuard key; null when nobody did, and once it is in use."""
    failed_tries: int
    """How often the step in progress has failed."""
    deadline_at: Timestamp
    """By when it has to be open, unless it waits for the others of its pool."""


class NodeReportPage(View):
    """A page of nodes as operators see them."""

    items: tuple[NodeReportView, ...]
    """The nodes, newest first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""
