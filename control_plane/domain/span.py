"""Spans of time in whole seconds, half open: `since` belongs to them, `until` does not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Time from `since` to just before `until`."""

    since: datetime
    until: datetime

    @property
    def seconds(self) -> int:
        return max(0, (self.until - self.since) // _SECOND)


@dataclass(frozen=True, slots=True)
class Run:
    """Failed time that is one failure: the customer's stops within it do not end it."""

    parts: tuple[Span, ...]

    @property
    def worked(self) -> int:
        """Seconds of it, without the customer's stops."""
        return sum(part.seconds for part in self.parts)

    def after(self, seconds: int) -> list[Span]:
        """What of it comes after so many seconds of it."""
        late: list[Span] = []
        for part in self.parts:
            cut = min(part.until, part.since + timedelta(seconds=max(0, seconds)))
            seconds -= part.seconds
            if cut < part.until:
                late.append(Span(cut, part.until))
        return late


def floor(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def spans_of(found: Iterable[tuple[datetime, datetime | None]], stop: datetime) -> list[Span]:
    """The spans up to `stop`, in whole seconds; one without an end lasts until then."""
    cut = [Span(floor(since), stop if until is None else min(stop, floor(until))) for since, until in found]
    return [span for span in cut if span.since < span.until]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans that neither overlap nor touch, in order."""
    made: list[Span] = []
    for span in sorted(span for span in spans if span.since < span.until):
        if made and span.since <= made[-1].until:
            made[-1] = Span(made[-1].since, max(made[-1].until, span.until))
        else:
            made.append(span)
    return made


def common(some: Iterable[Span], others: Sequence[Span]) -> list[Span]:
    """The time that is in both."""
    return joined(
        Span(max(one.since, other.since), min(one.until, other.until)) for one in some for other in others
    )


def without(some: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """The time of some that is in none of the others, which are joined."""
    left: list[Span] = []
    for one in some:
        since = one.since
        for other in others:
            if other.until <= since or other.since >= one.until:
                continue
            if since < other.since:
                left.append(Span(since, other.since))
            since = other.until
        if since < one.until:
            left.append(Span(since, one.until))
    return left


def total(spans: Iterable[Span]) -> int:
    return sum(span.seconds for span in spans)


def runs_of(spans: Sequence[Span], stops: Sequence[Span]) -> list[Run]:
    """Spans that touch, or between which there is only a customer's stop, are one run."""
    runs: list[list[Span]] = []
    for whole in joined([*spans, *stops]):
        parts = without(common(spans, [whole]), stops)
        if parts:
            runs.append(parts)
    return [Run(tuple(parts)) for parts in runs]
