"""The metrics of warm pools, as one reading of the database found them (`figures.py`)."""

from collections.abc import Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from control_plane.db.warm_pool_figures import WarmPoolFigures
from control_plane.domain.money import NANO_PER_USD


def of_warm_pools(pools: Sequence[WarmPoolFigures]) -> Iterator[Metric]:
    wanted = _family("wanted", "Machines that the policy of a warm pool asked for at the last look.")
    target = _family("target", "Machines that a warm pool keeps; none if it only shows what it would do.")
    machines = _family(
        "machines", "Machines of a warm pool that wait for a lease, verified or being set up.", "state"
    )
    requests = _family(
        "requests", "Leases of the last 24 hours that a warm pool could have served, or did.", "outcome"
    )
    avoided = _family(
        "avoided_wait_seconds", "How much longer the hits of the last 24 hours would have waited, together."
    )
    idle = _family("idle_usd", "What machines cost in the last 24 hours while they waited in a warm pool.")
    today = _family(
        "idle_today_usd", "What machines cost since midnight (UTC) while they waited in a warm pool."
    )
    budget = _family("budget_usd_per_day", "What the waiting machines of a warm pool may cost in a day.")
    for pool in pools:
        wanted.add_metric((pool.name,), pool.wanted)
        target.add_metric((pool.name,), pool.target)
        machines.add_metric((pool.name, "verified"), pool.verified)
        machines.add_metric((pool.name, "starting"), pool.starting)
        requests.add_metric((pool.name, "hit"), pool.hits)
        requests.add_metric((pool.name, "miss"), pool.requests - pool.hits)
        avoided.add_metric((pool.name,), pool.avoided_ms / 1_000)
        idle.add_metric((pool.name,), pool.idle_nano / NANO_PER_USD)
        today.add_metric((pool.name,), pool.idle_today_nano / NANO_PER_USD)
        budget.add_metric((pool.name,), pool.idle_nano_per_day / NANO_PER_USD)
    yield from (wanted, target, machines, requests, avoided, idle, today, budget)


def _family(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"splitplane_pool_{name}", help_text, labels=("pool", *labels))
