"""Rules for Prometheus, judged by promtool, and what our processes export."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Metric, generate_latest

from control_plane.api.observe import Metrics
from control_plane.db.data_keys import Counts
from control_plane.db.engine import PoolUse
from control_plane.ingest.metrics import Metrics as IngestMetrics
from control_plane.pool_metrics import PoolCollector
from data_plane.proof.verifier.service.metrics import Metrics as VerifierMetrics
from demo.ports import free_port
from providers import guard
from reconciler import health, proving, registry
from reconciler.figures import FIGURES, ROTATION
from tests.support.figures import SAMPLE_AUDIT, SAMPLE_FIGURES, SAMPLE_RECONCILED

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing: `python -m demo packages`")


def promtool(*arguments: str, text: str | None = None) -> None:
    assert PROMTOOL is not None
    ended = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus is missing: `python -m demo packages`"
)


@contextmanager
def prometheus(configuration: str) -> Iterator[str]:
    """A server that takes remote write; its URL."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "prometheus.yml").write_text(configuration)
        listen = f"127.0.0.1:{free_port()}"
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={listen}", "--web.enable-remote-write-receiver",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(lambda: _is_ready(listen))
            yield f"http://{listen}"
        finally:
            process.terminate()
            process.wait(20)


def until(done: Callable[[], bool]) -> None:
    """Look ten times a second, for 30 s at most. Raises TimeoutError."""
    for _ in range(300):
        if done():
            return
        subprocess.run(["sleep", "0.1"], check=True)
    raise TimeoutError


def _is_ready(listen: str) -> bool:
    try:
        return httpx.get(f"http://{listen}/-/ready").status_code == 200
    except httpx.TransportError:
        return False


class Series(msgspec.Struct):
    """A series in an answer of Prometheus."""

    metric: dict[str, str]
    """Its labels."""
    value: tuple[float, str]
    """When, in Unix seconds, and the value as text."""


class Exported:
    """A registry with everything that a process exports."""

    def __init__(self, name: str, registry: CollectorRegistry) -> None:
        self.name = name
        self.text = generate_latest(registry).decode()
        self.metrics: Sequence[Metric] = list(registry.collect())

    def names(self) -> set[str]:
        """The names of its series, those without a sample included."""
        return {
            name
            for metric in self.metrics
            for name in (
                metric.name,
                f"{metric.name}_total",
                f"{metric.name}_bucket",
                *(sample.name for sample in metric.samples),
            )
        }


def exported_by_all(monkeypatch: pytest.MonkeyPatch) -> list[Exported]:
    """What the processes export, with a sample of every business figure."""
    registry.discovered()
    assert health.CLOCK_DIFFERENCE
    assert proving.PROOFS
    assert guard.CALLS
    monkeypatch.setattr(FIGURES, "figures", SAMPLE_FIGURES)
    monkeypatch.setattr(FIGURES, "audit", SAMPLE_AUDIT)
    monkeypatch.setattr(FIGURES, "reconciled", SAMPLE_RECONCILED)
    monkeypatch.setattr(ROTATION, "counts", Counts(secrets=3, data_keys=2, to_rewrap=1, to_replace=0))
    api = Metrics()
    api.count("GET", "/v1/leases", 200, 0.01)
    api.registry.register(PoolCollector(lambda: [PoolUse("reads", 1, 10)]))
    ingest = IngestMetrics()
    ingest.wrote(1, 0, 0.01)
    return [
        Exported("reconciler", REGISTRY),
        Exported("ingest", ingest.registry),
        Exported("api", api.registry),
        Exported("verifier", VerifierMetrics().registry),
    ]
