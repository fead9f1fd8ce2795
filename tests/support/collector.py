"""A collector of traces on this machine: takes OTLP over HTTP, and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str]


@dataclass
class Collector:
    port: int = 0
    status: int = 200
    """What it answers."""
    head: bytes | None = None
    """What it answers instead, and then closes the connection."""
    endless: bool = False
    """Whether a body without end follows the head."""
    sent: int = 0
    """Bytes of that body that somebody took."""
    answers: threading.Event = field(default_factory=threading.Event)
    """Cleared, it takes requests and does not answer."""
    asked: threading.Event = field(default_factory=threading.Event)
    """Set by the first request."""
    spans: list[ReceivedSpan] = field(default_factory=list[ReceivedSpan])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    raw: bytearray = field(default_factory=bytearray)

    def variables(self) -> dict[str, str]:
        """The environment of a process that exports to it, without delay."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=planted-for-the-collector",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def path(self, span: ReceivedSpan) -> list[str]:
        """`service: name` of every span from the first one of the trace to this one."""
        by_id = {other.span_id: other for other in self.spans}
        path = [f"{span.service}: {span.name}"]
        while (parent := by_id.get(span.parent_id)) is not None:
            path.insert(0, f"{parent.service}: {parent.name}")
            span = parent
        return path

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            of_process = {pair.key: pair.value.string_value for pair in resource_spans.resource.attributes}
            self.spans += [
                ReceivedSpan(
                    of_process["service.name"],
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    {pair.key: pair.value.string_value for pair in span.attributes},
                )
                for scope_spans in resource_spans.scope_spans
                for span in scope_spans.spans
            ]


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    collector.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.asked.set()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.answers.wait()
            if collector.status == 200:
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                collector.take(body)
            if collector.head is None:
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.close_connection = True
                self.wfile.write(collector.head)
                with suppress(OSError):  # Nobody reads on.
                    while collector.endless:
                        collector.sent += self.wfile.write(b"x" * 65_536)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            collector.answers.set()
            server.shutdown()
            thread.join()
