"""The metrics of clusters and their nodes.

Those of a reading of the database are the same in every replica, as in `figures.py`. Joins are counted by the process
in which a node was opened or given up, and each process says when it had an answer of a cluster.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily

from control_plane.db.cluster_figures import ClusterFigures, PoolCount
from control_plane.domain.cluster import LIVE, ClusterState
from control_plane.domain.node_pool import LIVE as LIVE_POOL
from control_plane.domain.node_pool import NodePoolState

OPENED, FAILED, HOSTILE = "opened", "failed", "hostile"
_JOINS = Counter(
    "splitplane_node_joins", "Machines that were opened as nodes, or given up.", ("cluster", "outcome")
)
_JOIN_SECONDS = Histogram(
    "splitplane_node_join_seconds",
    "How long an opened node took from its verified machine on, its wait for others included.",
    ("cluster",),
    buckets=(30, 60, 120, 180, 300, 600, 1200, 1800, 3600),
)


_ANSWERED = Gauge(
    "splitplane_cluster_answered_timestamp_seconds",
    "When the API server of a cluster with open nodes answered last, or was asked first by this process.",
    ("cluster",),
)
_asked: set[str] = set()
"""Clusters that this process has asked."""


def note_asked(cluster: str, now: datetime) -> None:
    """Export from now on when it answered, so that one that never answers this process is noticed as well."""
    if cluster not in _asked:
        _asked.add(cluster)
        note_answer(cluster, now)


def note_answer(cluster: str, now: datetime) -> None:
    _ANSWERED.labels(cluster).set(now.timestamp())


def expect_joins(cluster: str) -> None:
    """Export the counters from now on, so that the first join that fails is an increase."""
    for outcome in (OPENED, FAILED, HOSTILE):
        _JOINS.labels(cluster, outcome)


def count_join(cluster: str, outcome: str, took: timedelta | None = None) -> None:
    """`took`: for a node that was opened."""
    _JOINS.labels(cluster, outcome).inc()
    if took is not None:
        _JOIN_SECONDS.labels(cluster).observe(took.total_seconds())


def of_clusters(clusters: Sequence[ClusterFigures], pools: Sequence[PoolCount]) -> Iterator[Metric]:
    yield _by_state(
        "clusters",
        "Clusters by state. Those that are gone are not counted.",
        {state: sum(each.state is state for each in clusters) for state in ClusterState if state in LIVE},
    )
    failing = _family("cluster_failing", "1 while a cluster cannot be built or dismantled.")
    nodes = _family("nodes", "Nodes by state. Those that are gone are not counted.", "state")
    unready = _family("nodes_unready", "Open nodes that are not ready in their cluster.")
    without_gpus = _family(
        "nodes_without_gpus", "Open nodes on which pods cannot have all GPUs that were sold."
    )
    kubeconfigs = _family("kubeconfigs", "Kubeconfigs that open something.")
    for each in clusters:
        failing.add_metric((each.name,), each.failing_since is not None)
        for state, number in (("joining", each.joining), ("ready", each.ready), ("leaving", each.leaving)):
            nodes.add_metric((each.name, state), number)
        unready.add_metric((each.name,), each.unready)
        without_gpus.add_metric((each.name,), each.without_gpus)
        kubeconfigs.add_metric((each.name,), each.kubeconfigs)
    yield from (failing, nodes, unready, without_gpus, kubeconfigs)
    yield _times(
        "tunnels_read_oldest_timestamp_seconds",
        "When the tunnels were last read of the open node or server that was read the longest ago.",
        [(each.name, each.tunnels_read_at) for each in clusters],
    )
    yield _times(
        "server_handshake_oldest_timestamp_seconds",
        "When the tunnel with the server last had a handshake of the open node whose last one is the longest ago.",
        [(each.name, each.handshake_at) for each in clusters],
    )
    yield _times(
        "kubeconfigs_wanted_oldest_timestamp_seconds",
        "When the first kubeconfig was asked for that is not issued yet.",
        [(each.name, each.kubeconfig_wanted_at) for each in clusters],
    )
    yield from _of_pools(pools)


def _of_pools(pools: Sequence[PoolCount]) -> Iterator[Metric]:
    counts = {count.state: count.pools for count in pools}
    yield _by_state(
        "node_pools",
        "Node pools by state. Those that are gone are not counted.",
        {state: counts.get(state, 0) for state in NodePoolState if state in LIVE_POOL},
    )
    oldest = GaugeMetricFamily(
        "splitplane_node_pools_waiting_oldest_timestamp_seconds",
        "Since when the first node pool lacks a node that is not admitted.",
        labels=("state",),
    )
    for count in pools:
        if count.waiting_since is not None:
            oldest.add_metric((count.state,), count.waiting_since.timestamp())
    yield oldest


def _by_state(
    name: str, help_text: str, counts: dict[ClusterState, int] | dict[NodePoolState, int]
) -> Metric:
    family = GaugeMetricFamily(f"splitplane_{name}", help_text, labels=("state",))
    for state, number in counts.items():
        family.add_metric((state,), number)
    return family


def _family(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"splitplane_{name}", help_text, labels=("cluster", *labels))


def _times(name: str, help_text: str, times: Sequence[tuple[str, datetime | None]]) -> Metric:
    """One sample for each cluster that has such a time."""
    family = _family(name, help_text)
    for cluster, at in times:
        if at is not None:
            family.add_metric((cluster,), at.timestamp())
    return family
