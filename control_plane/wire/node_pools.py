"""Node pools on the wire: equal nodes of one SKU in a Kubernetes cluster."""

from typing import Annotated

from msgspec import Meta, field

from control_plane.wire.catalogue import PlacementRequest
from control_plane.wire.common import Money, Name, NextCursor, Request, Timestamp, View
from control_plane.wire.leases import WAIT_SECONDS_DEFAULT, WAIT_SECONDS_MAX, LeaseRequestView
from control_plane.wire.vocabulary import (
    ClusterIdText,
    EnvironmentIdText,
    NodePoolIdText,
    OrganizationIdText,
    ProjectIdText,
    one_of,
)

NODES_MAX = 64
MARKS_MAX = 32
POOL_NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$(?!\n)"
_POOL_NAME = "1 to 40 lower-case letters, digits or -, starting and ending with a letter or digit"
NodePoolName = Annotated[
    str,
    Meta(
        pattern=POOL_NAME_PATTERN,
        description=f"{_POOL_NAME}. It is the value of a label of its nodes.",
        examples=["train"],
        extra={"must": _POOL_NAME},
    ),
]
NodeLabelKey = Annotated[
    str, Meta(min_length=1, max_length=317, description="A label's key.", examples=["team"])
]
NodeLabelValue = Annotated[str, Meta(max_length=63, description="A label's value.", examples=["vision"])]
NodeLabels = Annotated[
    dict[NodeLabelKey, NodeLabelValue],
    Meta(
        max_length=MARKS_MAX,
        description="Kubernetes labels of nodes. Keys below kubernetes.io, k8s.io, k3s.io, cattle.io and splitplane.io"
        " are reserved.",
        examples=[{"team": "vision"}],
    ),
]
NodePoolStateWord = Annotated[
    str,
    one_of(
        "NodePoolState",
        "What becomes of a node pool.",
        pending="Its nodes are being leased and join the cluster; none is opened, and none is billed.",
        ready="All of its nodes were opened together; nodes that are lost since then are replaced.",
        deleting="Its leases have ended, and its nodes leave the cluster.",
        gone="Every machine of it is confirmed gone.",
    ),
]
_EFFECTS = {
    "NoSchedule": "Pods that do not tolerate it are not scheduled there.",
    "PreferNoSchedule": "They are scheduled there only when nothing else is free.",
    "NoExecute": "They are not scheduled there, and those that run there are evicted.",
}
TaintEffectWord = Annotated[str, one_of("TaintEffect", "What a taint does to pods.", **_EFFECTS)]
TaintEffectText = Annotated[
    str,
    Meta(
        pattern=rf"^({'|'.join(_EFFECTS)})$(?!\n)",
        description=", ".join(_EFFECTS),
        examples=["NoSchedule"],
        extra={"must": f"one of {', '.join(_EFFECTS)}"},
    ),
]
NodeCount = Annotated[int, Meta(ge=1, le=NODES_MAX, examples=[2])]


class TaintRequest(Request):
    """A taint that nodes are to have."""

    key: NodeLabelKey
    """Its key."""
    effect: TaintEffectText
    """What it does to pods that do not tolerate it."""
    value: NodeLabelValue = ""
    """Its value; empty when it is left out."""


class NodePoolRequest(PlacementRequest, kw_only=True):
    """The node pool that is wanted. Everything but the names and the number is what each of its nodes is to be."""

    cluster: Annotated[Name, Meta(examples=["eu-1"])]
    """The name or the id of a cluster that your organization may use: GET /v1/clusters lists them."""
    name: NodePoolName
    """Unique among the node pools of the project in the cluster."""
    nodes: NodeCount
    """How many nodes, all or none to begin with: up to 64."""
    node_labels: NodeLabels = field(default_factory=dict)
    """Kubernetes labels of the nodes."""
    node_taints: Annotated[tuple[TaintRequest, ...], Meta(max_length=MARKS_MAX)] = ()
    """Kubernetes taints of the nodes. Other projects' pods are kept away in any case."""
    wait_timeout_seconds: Annotated[int, Meta(ge=60, le=WAIT_SECONDS_MAX)] = WAIT_SECONDS_DEFAULT
    """How long the pool tries to get all of its nodes ready, from its creation, before it is given up: from a minute
    to seven days. A pool that is given up was never billed."""


class NodePoolChangeRequest(Request):
    """The new size."""

    nodes: NodeCount
    """How many nodes there are to be. More are admitted all or none; what is less stops being billed at once."""


class TaintView(View):
    """A taint of nodes."""

    key: str
    """Its key."""
    value: str
    """Its value; empty when it has none."""
    effect: TaintEffectWord
    """What it does to pods that do not tolerate it."""


class NodePoolLeasesView(View):
    """How far the leases of a node pool are: each of its nodes is a lease."""

    live: int
    """Leases that nobody ended. One that ended is replaced."""
    with_machine: int
    """Of these, the ones that have a machine."""
    joining: int
    """Of these, the ones whose machine is joining the cluster."""
    healthy: int
    """Of these, the ones that are healthy in the cluster, and wait to be opened with the others."""
    ready: int
    """The live leases whose node is open. Only they are billed."""
    ending: int
    """Leases that ended, and whose machines are not confirmed gone yet."""


class NodePoolWaitingView(View):
    """A node that the pool lacks is not admitted now. It is tried again every 30 seconds."""

    since: Timestamp
    """Since when."""
    code: str
    """The code of the refusal."""
    why: str
    """What to change, as a sentence."""


class ScalingConditionView(View):
    """Something that is so about a node pool that follows an object in its cluster, or is not."""

    type: str
    """What it is about: Ready, Admitted or CapacityAvailable."""
    status: bool
    """Whether it is so."""
    reason: str
    """One word for programs."""
    message: str
    """A sentence for people."""
    since: Timestamp
    """Since when it is so, or is not."""


class NodePoolScalingView(View):
    """What the NodePool and the ScalingPolicy in the cluster say about a node pool, as they were last looked at."""

    policy: str | None
    """The ScalingPolicy that decides its number of nodes; null when its NodePool does."""
    nodes_min: int
    """How many nodes it has at least."""
    nodes_max: int
    """How many nodes it has at most."""
    conditions: tuple[ScalingConditionView, ...]
    """What is so, and what is in the way."""
    object_missing_since: Timestamp | None
    """Since when the NodePool is gone although nobody was seen deleting it; null while it is there. Nodes leave when
    they are empty meanwhile."""
    scaled_at: Timestamp | None
    """When its number of nodes last changed; null when it never did."""
    scaled_why: str | None
    """Why it changed."""
    looked_at: Timestamp | None
    """When the cluster was last looked at; null before the first time."""


class NodePoolView(View, kw_only=True):
    """A node pool: equal nodes of one SKU in a Kubernetes cluster. Each node is a lease of its own."""

    id: NodePoolIdText
    """The id of the node pool."""
    name: str
    """Its name."""
    cluster: str
    """The name of its cluster."""
    cluster_id: ClusterIdText
    """The id of its cluster."""
    project: str
    """The name of the project that it belongs to."""
    project_id: ProjectIdText
    """The id of that project."""
    environment: str
    """The name of the environment that it belongs to."""
    environment_id: EnvironmentIdText
    """The id of that environment."""
    request: LeaseRequestView
    """What each of its nodes is to be."""
    nodes: int
    """How many nodes it is to have."""
    node_labels: dict[str, str]
    """Kubernetes labels of its nodes."""
    node_taints: tuple[TaintView, ...]
    """Kubernetes taints of its nodes."""
    state: NodePoolStateWord
    """Its state."""
    leases: NodePoolLeasesView
    """How far the leases of its nodes are."""
    price_per_hour: Money
    """What its live leases cost per hour together once they are ready."""
    wait_timeout_seconds: int
    """How long it tries to get ready, in seconds from its creation."""
    gives_up_at: Timestamp | None
    """When it is given up unless it is ready by then; null once it was ready or is being deleted."""
    scaling: NodePoolScalingView | None = None
    """What it follows in its cluster; null for a pool that is scaled here."""
    waiting: NodePoolWaitingView | None
    """Why a node that it lacks is not admitted; null while that is not so."""
    why: str | None
    """Why it is being deleted; null before."""
    created_at: Timestamp
    """When it was admitted."""
    ready_at: Timestamp | None
    """When all of its nodes were opened together; null before."""
    gone_at: Timestamp | None
    """When its last machine was confirmed gone; null before."""


class NodePoolPage(View):
    """A page of node pools."""

    items: tuple[NodePoolView, ...]
    """The node pools, newest first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""


class NodePoolReportView(View, kw_only=True):
    """A node pool as operators see it: with whose it is."""

    id: NodePoolIdText
    """The id of the node pool."""
    node_pool: NodePoolView
    """The node pool, as its customer sees it."""
    organization: str
    """The name of the organization that it belongs to."""
    organization_id: OrganizationIdText
    """The id of that organization."""


class NodePoolReportPage(View):
    """A page of node pools as operators see them."""

    items: tuple[NodePoolReportView, ...]
    """The node pools, newest first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""
