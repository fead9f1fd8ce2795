"""What a request leaves behind: an id, one log line, two metrics, and no secret in any of them.

`Envelope` is the one layer around the whole app, routing included, so that a 404 is logged and counted as
well. Paths appear as route templates, never with ids, and queries and headers do not appear at all: a key
that somebody pastes into a URL must not end up in a log.
"""

import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from control_plane.api.delivery import Delivery
from control_plane.domain.ids import Prefix, on_wire
from control_plane.world import World
from tracing.attributes import Attribute
from tracing.tracer import Kind, Span

_REQUEST_ID = "splitplane.request_id"
_FAULT = "splitplane.fault"
_HEADERS = "splitplane.headers"
_AT_ANSWER = "splitplane.at_answer"
_AT_END = "splitplane.at_end"
_AT_PART = "splitplane.at_part"
_REFUSED = "splitplane.refused"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

log = structlog.get_logger("api")


def note_start(*, listen: str, metrics_listen: str, database: str, traces: bool) -> None:
    log.info("api_started", listen=listen, metrics_listen=metrics_listen, database=database, traces=traces)


def note_stop() -> None:
    log.info("api_stopped")


def note_database(fault: str | None) -> None:
    """Log that the database cannot be used, and why, or that it can be used again."""
    if fault is None:
        log.info("database_usable")
    else:
        log.warning("database_not_usable", why=fault)


def note_login_refused(why: str) -> None:
    """Log why the process ends: its database login could go around row-level security."""
    log.error("database_login_refused", why=why)


def note_traces(why: str) -> None:
    """Log that traces are not exported as they should be. It never stops anything else."""
    log.warning("traces_not_exported", why=why)


def note_clock(refusal: str | None) -> None:
    """Log that the clocks of the host and of the database differ, or that they agree again."""
    if refusal is None:
        log.info("clock_right")
    else:
        log.error("clock_wrong", why=refusal)


class Metrics:
    """The metrics of this process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "splitplane_api_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "splitplane_api_request_seconds",
            "Seconds until the answer was sent.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.streams = Gauge("splitplane_api_streams", "Open event streams.", registry=self.registry)
        self.clock_difference = Gauge(
            "splitplane_clock_difference_seconds",
            "How far the clock of this host is ahead of the database's.",
            registry=self.registry,
        )
        self.listening = Gauge(
            "splitplane_api_listening",
            "Whether this process hears of changes (1). While it does not (0), event streams look at the database.",
            registry=self.registry,
        )
        self.sharing = Gauge(
            "splitplane_api_sharing_rates",
            "Whether this process shares callers' rates with the others (1). If not (0), it lives on its share.",
            registry=self.registry,
        )
        self._children: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        child = self._children.get((method, route, status))
        if child is None:
            child = (
                self.requests.labels(method, route, str(status)),
                self.seconds.labels(method, route),
            )
            self._children[method, route, status] = child
        child[0].inc()
        child[1].observe(seconds)


class MetricsListener:
    """`/metrics` on its own port and thread. A scrape does not wait for the API, and cannot be reached through it."""

    def __init__(self, metrics: Metrics, *, host: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, addr=host, registry=metrics.registry)
        self.port = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def notes(scope: Scope) -> dict[str, Any]:
    """The scope as the dictionary that it is; layers leave notes for each other in it."""
    return cast("dict[str, Any]", scope)


def request_id(scope: Scope) -> str:
    return str(notes(scope).get(_REQUEST_ID, "req_unknown"))


def add_headers(scope: Scope, *headers: tuple[bytes, bytes]) -> None:
    """Add headers to the answer, whether it will be a success or an error."""
    notes(scope)[_HEADERS] = headers


def at_answer(scope: Scope, call: Callable[[], None]) -> None:
    """Call this once, when the answer begins or the request ends without one."""
    notes(scope).setdefault(_AT_ANSWER, []).append(call)


def at_end(scope: Scope, call: Callable[[], None]) -> None:
    """Call this once, when the answer is sent, an event stream has begun, or the request ends without an answer."""
    notes(scope).setdefault(_AT_END, []).append(call)


def at_part(scope: Scope, call: Callable[[int], None]) -> None:
    """Call this with the size of each part of the answer."""
    notes(scope)[_AT_PART] = call


def count_part(scope: Scope, size: int) -> None:
    notes(scope).get(_AT_PART, _nothing)(size)


def record_refusal(scope: Scope, code: str) -> None:
    """Keep the code of the error that the request is answered with."""
    notes(scope)[_REFUSED] = code


def refusal_of(scope: Scope) -> str | None:
    """The code of the error that the request is answered with; None when it succeeds."""
    code = notes(scope).get(_REFUSED)
    return None if code is None else str(code)


def stream_begins(scope: Scope) -> None:
    """The answer is an event stream, which has bounds of its own."""
    _run(scope, _AT_END)


def _run(scope: Scope, when: str) -> None:
    for call in notes(scope).pop(when, ()):
        call()


def record_fault(scope: Scope, error: Exception) -> None:
    """Keep a bug for the log line: its type and place, never its text, which may contain values."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    notes(scope)[_FAULT] = {
        "error": type(error).__name__,
        "where": [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames],
    }


def _traceparent(scope: Scope) -> str | None:
    found = [value for name, value in scope["headers"] if name == b"traceparent"]
    return found[0].decode("latin-1") if len(found) == 1 else None


def _describe(span: Span, scope: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Record on a span what the log line says, and which operation it was. No path: it may hold anything."""
    matched, known = fields["route"] != "none", fields["method"] != "other"
    method = fields["method"] if known else "HTTP"  # As in OpenTelemetry's conventions, and so is _OTHER.
    span.rename(f"{method} {fields['route']}" if matched else method)
    span.set(Attribute.METHOD, fields["method"] if known else "_OTHER")
    span.set(Attribute.ROUTE, fields["route"] if matched else None)
    span.set(Attribute.STATUS, fields["status"] or None)
    span.set(Attribute.REQUEST, fields["request_id"])
    operation = getattr(scope.get("route_handler"), "operation_id", None)
    span.set(Attribute.OPERATION, operation if isinstance(operation, str) else None)
    if (principal := scope.get("auth")) is not None:
        span.set(Attribute.ORGANIZATION, on_wire(Prefix.ORGANIZATION, principal.organization_id))
    if fields["status"] >= 500:
        span.fail(scope[_FAULT]["error"] if _FAULT in scope else str(fields["status"]))
    elif fields["route"] in _PROBES or (principal is None and fields["status"] >= 400):
        # Strangers must not fill the queue of spans. They are in the log and in the metrics.
        span.forget_if_childless()


def _nothing(_size: int) -> None:
    """Nobody counts the parts of this answer."""


_PROBES = frozenset({"/healthz", "/readyz"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Envelope:
    """Wraps the routed app: gives the request its id, times the answer, writes the log line."""

    def __init__(self, app: ASGIApp, metrics: Metrics, world: World) -> None:
        self._app = app
        self._metrics = metrics
        self._new_id = world.new_id
        self._tracer = world.tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        name = f"req_{self._new_id().hex}"
        notes(scope)[_REQUEST_ID] = name
        started = time.perf_counter()
        status = 0

        async def stamped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _run(scope, _AT_ANSWER)
                headers = [*message["headers"], (b"x-request-id", name.encode())]
                headers += notes(scope).get(_HEADERS, ())
                message["headers"] = headers
            if message["type"] == "http.response.body":
                await delivery.body(message)
            else:
                await send(message)

        delivery = Delivery(send, partial(count_part, scope))
        with self._span(scope) as span:
            try:
                await self._app(scope, receive, stamped)
            except Exception:
                if not delivery.given_up:
                    raise
            finally:
                _run(scope, _AT_ANSWER)
                _run(scope, _AT_END)
                self._record(notes(scope), name, status, time.perf_counter() - started, span)

    def _span(self, scope: Scope) -> Span:
        """The span of a request, the first of a trace of ours, which is linked with the client's.

        A client that chose the trace would decide whether we record it, against our sampler, and could put all that
        it ever asks for into one.
        """
        span = self._tracer.span("request", Kind.SERVER, root=True)
        traceparent = _traceparent(scope) if self._tracer.on else None
        if traceparent is not None:
            span.link(traceparent)
        return span

    def _record(self, scope: dict[str, Any], name: str, status: int, seconds: float, span: Span) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        # The template of the route, or one word for all that matched none: a scanner must not create labels.
        route = str(scope.get("path_template") or "none")
        self._metrics.count(method, route, status, seconds)
        fields: dict[str, Any] = {
            "request_id": name,
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1_000, 2),
        }
        principal = scope.get("auth")
        if principal is not None:
            fields["subject"] = principal.subject.on_wire
            fields["api_key"] = principal.credential_name
        fault = scope.get(_FAULT)
        if span.traceparent is not None:
            fields["trace_id"] = span.traceparent.split("-")[1]
            _describe(span, scope, fields)
        if fault is not None:
            log.error("request_failed", **fields, **fault)
        else:
            log.info("request", **fields)
