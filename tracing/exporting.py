"""Records spans with OpenTelemetry's SDK, and exports them over OTLP. Nothing imports this file while traces are off.

Spans wait in a bounded queue for a thread that exports them. When the collector is away or slow, the queue fills and
further spans are dropped; nobody waits for it. What the SDK logs about that becomes at most one line per minute.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Token
from http.client import responses
from typing import Self

import requests
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tracing.attributes import Attribute
from tracing.tracer import Kind, Span, Tracer, Value

CLOSE_SECONDS_MAX = 2.0
"""How long the end of a process may wait for the export of its last spans."""
COMPLAIN_EVERY_SECONDS = 60.0
_LOGGER = "opentelemetry"
_EXPORTER = "opentelemetry.exporter."
_UNKNOWN_SERVICE = "unknown_service"
_CURRENT = contexts.create_key("splitplane-span")
_KINDS = {Kind.INTERNAL: SpanKind.INTERNAL, Kind.SERVER: SpanKind.SERVER, Kind.CLIENT: SpanKind.CLIENT}
_FORMAT = TraceContextTextMapPropagator()
"""Checks what clients send. A `tracestate` is not taken from them: it could hold anything."""


class RecordedSpan(Span):
    __slots__ = ("_children", "_forgotten", "_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Token[Context] | None = None
        self._children = False
        self._forgotten = False

    @property
    def traceparent(self) -> str:
        found = self._span.get_span_context()
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 1:02x}"

    def __enter__(self) -> Self:
        inside = trace.set_span_in_context(self._span)
        self._token = contexts.attach(contexts.set_value(_CURRENT, self, inside))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if kind is not None:
            self.fail(kind.__name__)
        if self._children or not self._forgotten:
            self._span.end()  # A span that never ends is not exported.

    def set(self, attribute: Attribute, value: Value | None) -> None:
        if value is not None:
            self._span.set_attribute(Attribute(attribute).value, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, error_type: str) -> None:
        self.set(Attribute.ERROR, error_type)
        self._span.set_status(StatusCode.ERROR)

    def link(self, traceparent: str) -> None:
        self._span.add_link(_span_context(traceparent))  # The SDK drops a link that leads nowhere.

    def forget_if_childless(self) -> None:
        self._forgotten = True

    def has_child(self) -> None:
        self._children = True


class CollectorRedirects(Exception):  # noqa: N818 - it says what is the case
    """The collector answered with another address. Nobody follows it: the headers for the collector are a secret."""


class RecordingTracer(Tracer):
    """Makes spans with a provider of OpenTelemetry's."""

    on = True

    def __init__(self, provider: TracerProvider, *, give_up: Callable[[], None] = lambda: None) -> None:
        """`give_up` ends an export that goes on when there is no more time for it."""
        self._provider = provider
        self._give_up = give_up
        self._tracer = provider.get_tracer("splitplane")

    def span(
        self, name: str, kind: Kind = Kind.INTERNAL, *, parent: str | None = None, root: bool = False
    ) -> RecordedSpan:
        current = None if root else _current()
        if current is not None:
            current.has_child()
        context = Context() if root else None
        if parent is not None:
            context = _FORMAT.extract({"traceparent": parent}, context=Context())
        return RecordedSpan(self._tracer.start_span(name, context, _KINDS[kind]))

    def step(self, name: str, traceparent: str | None) -> RecordedSpan:
        span, current = self.span(name, parent=traceparent), _current()
        if traceparent is not None and current is not None:
            current.link(traceparent)
            span.link(current.traceparent)
        return span

    def traceparent(self) -> str | None:
        current = _current()
        return None if current is None else current.traceparent

    def note(self, attribute: Attribute, value: Value) -> None:
        current = _current()
        if current is not None:
            current.set(attribute, value)

    def close(self) -> None:
        # On a thread of its own, because the SDK waits longer for a collector that does not answer.
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS_MAX)
        if closing.is_alive():
            self._give_up()
            closing.join(CLOSE_SECONDS_MAX / 4)


def _current() -> RecordedSpan | None:
    found = contexts.get_value(_CURRENT)
    return found if isinstance(found, RecordedSpan) else None


def _span_context(traceparent: str) -> trace.SpanContext:
    found = _FORMAT.extract({"traceparent": traceparent}, context=Context())
    return trace.get_current_span(found).get_span_context()


def start(service: str, complain: Callable[[str], None]) -> RecordingTracer:
    """Start to export as the environment says. `complain` gets a sentence, now and then, while that does not work."""
    logger = logging.getLogger(_LOGGER)
    logger.handlers, logger.propagate = [_Complaints(complain)], False
    provider = TracerProvider(resource=_resource(service), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(session=_session())
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return RecordingTracer(provider, give_up=exporter.shutdown)


def _session() -> requests.Session:
    """How the collector is asked: its answers are not read, however long they are, and are judged by their status."""
    session = requests.Session()
    session.stream = True
    session.hooks["response"] = [_judge]
    return session


def _judge(response: requests.Response, **_: object) -> None:
    response.close()
    if response.is_redirect or response.is_permanent_redirect:
        raise CollectorRedirects  # The SDK would take it for a success.
    response.reason = responses.get(
        response.status_code, "unknown status"
    )  # The collector could write anything.


def _resource(service: str) -> Resource:
    """What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say of this process; without a name there, `service`."""
    found = Resource.create()
    named = not str(found.attributes.get(SERVICE_NAME, _UNKNOWN_SERVICE)).startswith(_UNKNOWN_SERVICE)
    return found if named else found.merge(Resource({SERVICE_NAME: service}))


_AFTER_THE_END = "Exporter already shutdown"
"""How the SDK's lines begin about spans that end while tracing ends, or later.

That is no trouble, and must not hide any.
"""


class _Complaints(logging.Handler):
    """Passes on what the SDK logs, at most once a minute, and nothing that may quote a secret or raise in a request."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._complain = complain
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith(_AFTER_THE_END) or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + COMPLAIN_EVERY_SECONDS
        given = record.args if isinstance(record.args, tuple) else ()
        known = tuple(_harmless(part, record.name) for part in given)
        with suppress(Exception):  # Whoever reads the log may be gone; requests and loops go on.
            self._complain(record.msg % known if known else str(record.msg))


def _harmless(part: object, logger: str) -> object:
    """What may be logged of an argument of the SDK's log line: of an exception its type, and no malformed header."""
    if isinstance(part, BaseException):
        return type(part).__name__
    return part if isinstance(part, int | float) or logger.startswith(_EXPORTER) else "..."
