"""The metrics of the verifier service, in a registry of their own."""

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """Metrics contain no id, seed or text of a job."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.jobs = Counter(
            "splitplane_verifier_jobs",
            "Jobs that were checked: `right`, or the fault that was found.",
            ("kind", "result"),
            registry=self.registry,
        )
        self.calls = Counter(
            "splitplane_verifier_calls",
            "Calls by the status they ended with.",
            ("status",),
            registry=self.registry,
        )
        self.call_seconds = Histogram(
            "splitplane_verifier_call_seconds",
            "Calls, waiting included.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.cpu_seconds = Counter(
            "splitplane_verifier_cpu_seconds", "CPU time of checked jobs.", ("kind",), registry=self.registry
        )
        self.queue_seconds = Histogram(
            "splitplane_verifier_queue_seconds",
            "A batch's wait for a worker.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.queued = Gauge(
            "splitplane_verifier_queued_jobs", "Jobs that wait for a worker.", registry=self.registry
        )
        self.running = Gauge("splitplane_verifier_running_jobs", "Jobs that run.", registry=self.registry)
        self.restarts = Counter(
            "splitplane_verifier_worker_restarts", "Workers replaced.", ("why",), registry=self.registry
        )


@contextlib.contextmanager
def counted(gauge: Gauge, jobs: int) -> Iterator[None]:
    """Count these jobs in a gauge while the context lasts."""
    gauge.inc(jobs)
    try:
        yield
    finally:
        gauge.dec(jobs)
