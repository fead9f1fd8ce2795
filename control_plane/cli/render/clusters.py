"""Kubernetes clusters and their server hosts on the screen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, table
from control_plane.cli.render.node_pools import node_pool_report_table, node_pool_table
from control_plane.cli.render.nodes import node_report_table, node_table
from control_plane.cli.words import ago, both, coarse
from control_plane.wire.clusters import ClusterView
from control_plane.wire.node_pools import NodePoolReportView, NodePoolView
from control_plane.wire.nodes import NodeReportView, NodeView
from control_plane.wire.server_hosts import ServerHostView

_SHARED = "all organizations"


def cluster_table(clusters: Sequence[ClusterView], now: datetime) -> RenderableType:
    if not clusters:
        return Text("No clusters.")
    rows = [
        (
            cluster.name,
            "failing" if cluster.failing_since else cluster.state,
            cluster.version or "-",
            cluster.organization_id or _SHARED,
            coarse(now - cluster.created_at),
        )
        for cluster in clusters
    ]
    columns = ("NAME", "STATE", "VERSION", "FOR", "AGE")
    return table(columns, rows, right=("AGE",), whole=("FOR",))


def progress_of(cluster: ClusterView) -> str:
    """What happens to a cluster that is being built, as a sentence."""
    if cluster.failing_since is None:
        return f"{cluster.name}: its server is being installed on a host in {cluster.region}"
    return f"{cluster.name}: it cannot be built, and is tried again: {cluster.failing_why or 'see its host'}"


@dataclass(frozen=True, slots=True)
class Inside:
    """What the caller has in a cluster."""

    pools: Sequence[NodePoolView]
    nodes: Sequence[NodeView]


@dataclass(frozen=True, slots=True)
class Everybodys:
    """What operators see in a cluster."""

    pools: Sequence[NodePoolReportView]
    nodes: Sequence[NodeReportView]


def cluster_page(
    cluster: ClusterView, now: datetime, inside: Inside | Everybodys | None = None
) -> RenderableType:
    failing = []
    if cluster.failing_since is not None:
        why = cluster.failing_why or "the operator is told why"
        failing = [("Failing", f"for {coarse(now - cluster.failing_since)}: {why}")]
    elif cluster.failing_why is not None:
        failing = [("Failing", cluster.failing_why)]
    return Group(
        Text(cluster.name, style="bold"),
        Text(),
        facts(
            ("Cluster", cluster.id),
            ("State", cluster.state),
            ("For", cluster.organization_id or _SHARED),
            ("Region", cluster.region),
            ("Version", cluster.version or "not known before it is ready"),
            ("API server", cluster.endpoint or "not known before it is ready"),
            *failing,
            ("New key", _key_change(cluster, now)),
            ("Created", both(cluster.created_at, now)),
        ),
        *([] if inside is None else _inside(cluster.name, inside, now)),
    )


def _key_change(cluster: ClusterView, now: datetime) -> str | None:
    asked_at = cluster.key_change_requested_at
    return None if asked_at is None else f"of its server, requested {ago(asked_at, now)}"


def _inside(cluster: str, inside: Inside | Everybodys, now: datetime) -> Iterator[RenderableType]:
    yield Text()
    if isinstance(inside, Everybodys):
        yield node_pool_report_table(inside.pools, now)
        yield Text()
        yield node_report_table(inside.nodes, now)
        return
    yield node_pool_table(inside.pools, now, cluster)
    if inside.pools:
        yield Text()
        yield node_table(inside.nodes, now)


def server_host_table(hosts: Sequence[ServerHostView], now: datetime) -> RenderableType:
    if not hosts:
        return Text("No hosts for the servers of clusters. To add one: splitplane server-host add --help")
    rows = [
        (
            host.name,
            host.region,
            f"{host.address}:{host.ssh_port}",
            host.outside,
            host.cluster or "free",
            coarse(now - host.added_at),
        )
        for host in hosts
    ]
    return table(("NAME", "REGION", "SSH", "OUTSIDE", "CLUSTER", "AGE"), rows, right=("AGE",))
