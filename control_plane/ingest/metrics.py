"""The metrics of the ingest process, and its listener for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from data_plane.documents.sample_delivery import STATUSES

OVERLOADED = "overloaded"
"""What a delivery is counted as that we could not take, whatever it was."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """In a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.deliveries = Counter(
            "splitplane_ingest_deliveries",
            "Deliveries of samples that were answered, by verdict.",
            ("verdict",),
            registry=self.registry,
        )
        for verdict in (*STATUSES, OVERLOADED):
            self.deliveries.labels(verdict)
        self.samples = Counter(
            "splitplane_ingest_samples",
            "Samples that were received: stored, repeated (stored already), or too_old to be stored.",
            ("outcome",),
            registry=self.registry,
        )
        for outcome in ("stored", "repeated", "too_old"):
            self.samples.labels(outcome)
        self.bytes = Counter(
            "splitplane_ingest_bytes",
            "Bytes of deliveries, compressed, and of what they contain.",
            ("of",),
            registry=self.registry,
        )
        for of in ("compressed", "content"):
            self.bytes.labels(of)
        self.seconds = Histogram(
            "splitplane_ingest_seconds",
            "Seconds until a delivery was answered.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.write_seconds = Histogram(
            "splitplane_ingest_write_seconds",
            "Seconds of a statement that adds samples.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.queued = Gauge(
            "splitplane_ingest_queued_samples", "Samples that wait to be added.", registry=self.registry
        )
        self.machines = Gauge(
            "splitplane_ingest_machines",
            "Machines that delivered samples in the last 10 to 20 minutes.",
            registry=self.registry,
        )
        self.clock_difference = Gauge(
            "splitplane_clock_difference_seconds",
            "How far the clock of this host is ahead of the database's.",
            registry=self.registry,
        )

    def wrote(self, new: int, repeated: int, seconds: float) -> None:
        self.samples.labels("stored").inc(new)
        self.samples.labels("repeated").inc(repeated)
        self.write_seconds.observe(seconds)


def listen(metrics: Metrics, host: str, port: int) -> Callable[[], None]:
    """Serve `/metrics` in a thread of its own. Returns what ends it. Raises OSError."""
    server, thread = start_http_server(port, addr=host, registry=metrics.registry)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
