"""The state machine of a cluster: K3s servers of ours, and rented machines that join them as nodes.

    BUILDING --built--> READY --deleted--> DELETING --dismantled--> GONE
        `---------------- deleted -----------^

A cluster is shared, or dedicated to one organization. Its servers are hosts of ours in one place, because etcd does not
bear the distance between clouds. Its nodes are rented anywhere and trusted with nothing. Building is tried until it
succeeds or somebody deletes the cluster: a server that cannot be installed is ours to repair.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from control_plane.domain.ids import ClusterId, OrganizationId, Prefix, ServerHostName, on_wire
from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class ClusterState(StrEnum):
    BUILDING = "building"
    """Its servers are being installed."""
    READY = "ready"
    """Its API server answers, and nodes can join."""
    DELETING = "deleting"
    """No node can join. Its nodes leave, and then its servers are dismantled."""
    GONE = "gone"
    """Nothing of it is left on its server hosts."""


class ClusterEvent(StrEnum):
    BUILT = "built"
    """Its servers run, and the API server answered at the endpoint that customers use."""
    DELETED = "deleted"
    """An operator deleted it."""
    DISMANTLED = "dismantled"
    """Its nodes are gone, and its server hosts are cleaned."""


_S = ClusterState
_E = ClusterEvent

NEXT: dict[tuple[ClusterState, ClusterEvent], ClusterState] = {
    (_S.BUILDING, _E.BUILT): _S.READY,
    (_S.BUILDING, _E.DELETED): _S.DELETING,
    (_S.READY, _E.DELETED): _S.DELETING,
    (_S.DELETING, _E.DISMANTLED): _S.GONE,
}

LIVE = frozenset({_S.BUILDING, _S.READY, _S.DELETING})
"""States in which a cluster has its name, its range of addresses and its server hosts."""
TERMINAL = frozenset({_S.GONE})


def server_name(cluster_id: ClusterId) -> str:
    """The name that only the certificate of this cluster's servers has.

    It is one label, because K3s may sign a certificate with a wildcard for a node, and a wildcard never stands for a
    whole name (RFC 6125, 6.4.3).
    """
    return on_wire(Prefix.CLUSTER, cluster_id).replace("_", "-")


def looks_like_an_id(name: str) -> bool:
    """Whether the word is read as a cluster's id wherever one is named, so that none may be called so."""
    return name.startswith(f"{Prefix.CLUSTER}_")


def step(
    state: ClusterState, event: ClusterEvent
) -> Moved[ClusterState, ClusterEvent] | Ignored[ClusterState, ClusterEvent]:
    return step_table(NEXT, state, event)


@dataclass(frozen=True, slots=True)
class ServerHost:
    """A host of ours on which the server of a cluster can run. An operator registers it."""

    name: ServerHostName
    region: str
    address: str
    """Where we reach its sshd: an IPv4 or IPv6 address."""
    ssh_port: int
    host_key: str
    """One OpenSSH public key line."""
    outside: str
    """The address at which nodes and customers reach it."""
    cluster_id: ClusterId | None
    """The cluster whose server runs there, or ran there and is not yet dismantled; None while it is free."""
    cluster_name: str | None
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as it is stored now."""

    id: ClusterId
    organization_id: OrganizationId | None
    """Whom it is dedicated to; None for one that organizations share."""
    name: str
    region: str
    """Where its servers are."""
    state: ClusterState
    generation: int
    overlay: int
    """Which range of the address plan it has (`overlay.py`)."""
    version: str | None
    """The Kubernetes version that its API server last told; None before it is built."""
    endpoint: str | None
    """The URL of its API server; None before it is built."""
    ca_pem: str | None
    """The certificate authority of its API server, PEM; None before it is built."""
    tries: int
    """Failed tries of the step in progress."""
    failing_since: datetime | None
    """Since when it can be neither built nor dismantled. Whether a ready one answers is a metric."""
    failing_why: str | None
    """What fails, for operators. That its tunnels cannot be applied is no reason for `failing_since`."""
    server_key_asked_at: datetime | None
    """When an operator asked for another WireGuard key of its server; None once that is in use."""
    created_at: datetime
    ready_at: datetime | None
    gone_at: datetime | None
