"""Nodes on the wire: rented machines in a Kubernetes cluster."""

from typing import Annotated

from control_plane.wire.agents import LeaseAgentView
from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import (
    ClusterIdText,
    GpuModelWord,
    LeaseIdText,
    MachineIdText,
    NodeIdText,
    NodePoolIdText,
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


class NodeStepView(View):
    """A step that a node has taken."""

    step: str
    """The name of the step, such as `registered`."""
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
    gpu_model: GpuModelWord
    """The model of its GPUs."""
    gpu_count: int
    """How many GPUs it has."""
    state: NodeStateWord
    """Its state."""
    steps: tuple[NodeStepView, ...]
    """The steps that it has taken into the cluster and out of it, in their order."""
    failing_why: str | None
    """Why the step in progress failed the last time; null when it did not."""
    conditions: dict[str, str]
    """Its conditions by type, as its cluster last told them: `True`, `False` or `Unknown`. They are the node's word.
    Only `TunnelProblem` is what we found: packets are lost between it and the cluster's server."""
    agent: LeaseAgentView | None = None
    """What the agent on its machine reported last; null before there is one."""
    leave_why: str | None
    """Why it leaves; null while it does not."""
    created_at: Timestamp
    """When it began to join."""
    ready_at: Timestamp | None
    """When it was opened for pods; null before."""
    unready_since: Timestamp | None
    """Since when the cluster says that it is not ready; null while it is, and before it was."""
    gone_at: Timestamp | None
    """When nothing of it was left in the cluster; null before."""


class NodePage(View):
    """A page of nodes."""

    items: tuple[NodeView, ...]
    """The nodes, newest first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""
