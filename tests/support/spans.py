"""Spans that a tracer recorded, kept in memory for assertions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tracing.exporting import RecordingTracer


@dataclass
class Spans:
    tracer: RecordingTracer = field(init=False)
    _exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = RecordingTracer(provider)

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def clear(self) -> None:
        self._exporter.clear()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def path(self, span: ReadableSpan) -> list[str]:
        """The names from the root of the trace to the span."""
        by_id = {each.context.span_id: each for each in self.all if each.context is not None}
        names = [span.name]
        while span.parent is not None:
            parent = by_id.get(span.parent.span_id)
            if parent is None:
                return ["(elsewhere)", *names]
            span = parent
            names.insert(0, span.name)
        return names

    def text(self) -> str:
        """Everything that was exported, for a search."""
        return json.dumps([json.loads(span.to_json()) for span in self.all])


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})
