"""What traces cost: a span and a request while they are off, and while they are on with an exporter that keeps nothing.

A request is GET /healthz through the whole app, in this process, without a database: the smallest request there is, so
that the difference is as large as it gets. Off and on take turns, because the machine has other work.
"""

import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from litestar import Litestar
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from benchmarks.results import Figure, median
from control_plane.api.app import create_app
from control_plane.services import process
from control_plane.settings import Settings
from tracing.attributes import Attribute
from tracing.exporting import RecordingTracer
from tracing.tracer import NO_TRACER, Tracer

ROUNDS = 15
REQUESTS = 1_000
SPANS = 1_500
STARTS = 5
REGION = ""
OFF, UNSAMPLED, ON = "off", "on, not sampled", "on, exporter that keeps nothing"
_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "method": "GET",
    "path": "/healthz",
    "raw_path": b"/healthz",
    "root_path": "",
    "scheme": "http",
    "query_string": b"",
    "headers": [(b"host", b"api"), (b"accept", b"*/*")],
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 2),
}


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - it keeps nothing
        return SpanExportResult.SUCCESS


async def measure() -> list[Figure]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    tracers = {OFF: NO_TRACER, UNSAMPLED: _recording(ALWAYS_OFF), ON: _recording(ALWAYS_ON)}
    apps = {name: _app(tracer) for name, tracer in tracers.items()}
    requests: dict[str, list[float]] = {name: [] for name in apps}
    spans: dict[str, list[float]] = {name: [] for name in tracers}
    for _ in range(ROUNDS):
        for name, app in apps.items():
            requests[name].append(await _timed(REQUESTS, partial(_request, app)))
        for name, tracer in tracers.items():
            spans[name].append(_span_seconds(tracer))
    for tracer in tracers.values():
        tracer.close()
    return [
        *(Figure(f"one span, {name}", 1e6 * median(found), "us") for name, found in spans.items()),
        *(Figure(f"one request, {name}", 1e6 * median(found), "us") for name, found in requests.items()),
        Figure("start: importing what traces need", median([_import_ms() for _ in range(STARTS)]), "ms"),
    ]


def _recording(sampler: Sampler) -> RecordingTracer:
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    return RecordingTracer(provider)


def _app(tracer: Tracer) -> Litestar:
    world = process.api_process("postgresql://nowhere/none", connections=1).world
    settings = Settings(database_url="", anonymous_requests_per_second=1e6)
    return create_app(replace(world, tracer=tracer), settings)


async def _timed(count: int, call: Callable[[], Awaitable[None]]) -> float:
    """Seconds per call."""
    begun = time.perf_counter()
    for _ in range(count):
        await call()
    return (time.perf_counter() - begun) / count


async def _request(app: Any) -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise RuntimeError(f"answered {message['status']}")

    await app({**_SCOPE, "headers": list(_SCOPE["headers"]), "state": {}}, receive, send)


def _span_seconds(tracer: Tracer) -> float:
    begun = time.perf_counter()
    for _ in range(SPANS):
        with tracer.span("benchmark") as span:
            span.set(Attribute.OUTCOME, "ok")
    return (time.perf_counter() - begun) / SPANS


def _import_ms() -> float:
    code = "import time; b = time.perf_counter(); import tracing.exporting; print((time.perf_counter() - b) * 1e3)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
