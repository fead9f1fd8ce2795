"""Kubernetes clusters."""

from typing import Annotated

from control_plane.wire.common import (
    Name,
    NamedOrganizationId,
    NextCursor,
    RegionName,
    Request,
    Timestamp,
    View,
)
from control_plane.wire.vocabulary import ClusterIdText, OrganizationIdText, one_of

ClusterStateWord = Annotated[
    str,
    one_of(
        "ClusterState",
        "What becomes of a cluster.",
        building="Its server is being installed.",
        ready="Its API server answers, and nodes can join.",
        deleting="Its nodes leave, and then its server is dismantled.",
        gone="Nothing of it is left on its server host.",
    ),
]


class ClusterRequest(Request):
    """A cluster to be created on a free server host."""

    name: Name
    """Unique among the clusters that are not gone, such as `eu-1`. It must not begin with `cl_`."""
    region: RegionName
    """Where its server runs: the region of a server host. Its nodes may be anywhere."""
    organization_id: NamedOrganizationId | None = None
    """The organization that it is dedicated to; null for a cluster that all organizations share."""


class ClusterView(View):
    """A Kubernetes cluster: a K3s server of the operator's, which rented machines join as nodes."""

    id: ClusterIdText
    """The id of the cluster."""
    name: str
    """Its name."""
    region: str
    """Where its server runs."""
    organization_id: OrganizationIdText | None
    """The organization that it is dedicated to; null for a cluster that all organizations share."""
    state: ClusterStateWord
    """Its state."""
    version: str | None
    """The version of Kubernetes; null before it is ready."""
    endpoint: str | None
    """The URL of its API server; null before it is ready."""
    failing_since: Timestamp | None
    """Since when it cannot be built or dismantled; null when that is not so."""
    failing_why: str | None
    """What fails, for operators; null for others, and when nothing fails."""
    created_at: Timestamp
    """When it was created."""
    ready_at: Timestamp | None
    """When it became ready; null before."""
    key_change_requested_at: Timestamp | None = None
    """When an operator asked for another WireGuard key of its server; null for others than operators, and once it is in
    use."""


class ClusterPage(View):
    """A page of clusters."""

    items: tuple[ClusterView, ...]
    """The clusters, oldest first."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get the next page; null on the last one."""
