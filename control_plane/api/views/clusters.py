"""Kubernetes clusters and their server hosts on the wire."""

from control_plane.domain.cluster import Cluster, ServerHost
from control_plane.domain.ids import Prefix, on_wire
from control_plane.wire.clusters import ClusterView
from control_plane.wire.server_hosts import ServerHostView


def cluster_view(cluster: Cluster, *, for_operators: bool) -> ClusterView:
    return ClusterView(
        id=on_wire(Prefix.CLUSTER, cluster.id),
        name=cluster.name,
        region=cluster.region,
        organization_id=(
            None if cluster.organization_id is None else on_wire(Prefix.ORGANIZATION, cluster.organization_id)
        ),
        state=cluster.state,
        version=cluster.version,
        endpoint=cluster.endpoint,
        failing_since=cluster.failing_since,
        failing_why=cluster.failing_why if for_operators else None,
        key_change_requested_at=cluster.server_key_asked_at if for_operators else None,
        created_at=cluster.created_at,
        ready_at=cluster.ready_at,
    )


def server_host_view(host: ServerHost) -> ServerHostView:
    return ServerHostView(
        name=host.name,
        region=host.region,
        address=host.address,
        ssh_port=host.ssh_port,
        host_key=host.host_key,
        outside=host.outside,
        cluster_id=None if host.cluster_id is None else on_wire(Prefix.CLUSTER, host.cluster_id),
        cluster=host.cluster_name,
        added_at=host.added_at,
    )
