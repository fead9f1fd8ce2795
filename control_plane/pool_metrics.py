"""The use of database connections as metrics, for every process that has a pool."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from control_plane.db.engine import PoolUse


class PoolCollector(Collector):
    """Shows what `pools` returns at the moment of the scrape."""

    def __init__(self, pools: Callable[[], Sequence[PoolUse]]) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        in_use = GaugeMetricFamily(
            "splitplane_database_connections_in_use",
            "Connections that are lent at this moment.",
            labels=("pool",),
        )
        most = GaugeMetricFamily(
            "splitplane_database_connections_max",
            "Connections that may be lent at the same time.",
            labels=("pool",),
        )
        for use in self._pools():
            in_use.add_metric((use.pool,), use.in_use)
            most.add_metric((use.pool,), use.size)
        yield from (in_use, most)
