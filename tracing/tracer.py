"""Traces as the rest of the product makes them. This tracer makes none: traces are off unless a process turns them on.

`tracing/exporting.py` has the tracer that records and exports spans. Only that file imports OpenTelemetry, and only a
process whose environment turns traces on imports that file.

A span is a context manager. The spans that are made inside it become its children, those of other tasks that were
started inside included. An exception that passes through is recorded by its type alone.
"""

from enum import Enum, auto
from typing import Self

from tracing.attributes import Attribute

Value = str | int | float | bool


class Kind(Enum):
    """OpenTelemetry's kinds of spans, as far as we have them."""

    INTERNAL = auto()
    SERVER = auto()
    CLIENT = auto()


class Span:
    """A span that records nothing."""

    __slots__ = ()

    @property
    def traceparent(self) -> str | None:
        """The span's place in its trace, in the format of W3C Trace Context; None while traces are off."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        return

    def set(self, attribute: Attribute, value: Value | None) -> None:
        """Record what the span is about. None records nothing."""

    def rename(self, name: str) -> None:
        """For a span whose name is known only at its end. A name contains no ids, so that spans can be grouped."""

    def fail(self, error_type: str) -> None:
        """Mark the span as failed, by a stable code."""

    def link(self, traceparent: str) -> None:
        """Point to another trace that this span works for; to none if this is not a valid traceparent."""

    def forget_if_childless(self) -> None:
        """Do not export the span, unless spans were made inside it."""


NO_SPAN = Span()


class Tracer:
    """Makes spans that record nothing."""

    on: bool = False

    def span(
        self, name: str, kind: Kind = Kind.INTERNAL, *, parent: str | None = None, root: bool = False
    ) -> Span:
        """A span inside the current one; or below `parent`, a traceparent; or, as `root`, in a trace of its own."""
        return NO_SPAN

    def step(self, name: str, traceparent: str | None) -> Span:
        """A span of work that the current span does for another trace: a child there, with links in both directions.

        Without a traceparent it is a span inside the current one.
        """
        return NO_SPAN

    def traceparent(self) -> str | None:
        """Where we are, for those who go on with the work later; None while traces are off."""
        return None

    def note(self, attribute: Attribute, value: Value) -> None:
        """Record on the current span what it turned out to be about."""

    def close(self) -> None:
        """Export what is left, for a bounded time."""


NO_TRACER = Tracer()
