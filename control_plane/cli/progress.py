"""Watching leases: from an event stream, or by polling where there is none; drawn as bars or plain lines.

A stream breaks for many reasons that have nothing to do with the lease: a proxy closes a quiet connection, a
replica is replaced, a laptop sleeps. A broken stream is opened again after the last event that was read. When
that fails, the lease is polled instead. An answer of the API ends the watch, or an outage that lasts too long.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self

import httpx
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from control_plane.cli.answers import Answer
from control_plane.cli.client import Client
from control_plane.cli.errors import CliError, not_the_api
from control_plane.cli.render.leases import mark_of, word_of
from control_plane.cli.sse import EventParser
from control_plane.cli.words import clean, span
from control_plane.wire.leases import LeaseView

STREAM_TRIES_MAX = 3
"""After so many streams in a row without an event, the lease is polled."""
POLL_SECONDS = 2.0
OUTAGE_SECONDS_MAX = 300.0
"""A watch outlives an outage of the API of this length, which covers a release of a new version, unless `--timeout`
says otherwise."""
RECONNECT_SECONDS = 1.0
RECONNECT_SECONDS_MAX = 10.0
BAR_WIDTH = 20
"""With the longest name, state and time, a line has 80 columns."""

_NOT_STATUS = frozenset({"journal", "end"})
"""Events that do not change the status. A journal line gives the stream its position."""

Settled = Callable[[LeaseView], bool]


def is_decided(lease: LeaseView) -> bool:
    """Ready, or never going to be."""
    return lease.state not in ("placing", "starting")


def is_ended(lease: LeaseView) -> bool:
    return lease.state == "ended"


def is_ready(lease: LeaseView) -> bool:
    return lease.state == "ready"


def follow(
    client: Client,
    lease_id: str,
    settled: Settled,
    *,
    wait: Callable[[float], Any],
    outage_seconds_max: float = OUTAGE_SECONDS_MAX,
) -> Iterator[Answer[LeaseView]]:
    """The lease after every change, until it is settled. There is no limit in time: a lease may wait for days.

    An outage of more than `outage_seconds_max` raises the error of the last try.
    """
    last_id, failures = "", 0
    while failures < STREAM_TRIES_MAX:
        pause = RECONNECT_SECONDS
        parser = EventParser()
        parser.last_id = last_id
        try:
            with closing(_streamed(client, lease_id, parser)) as answers:
                for answer in answers:
                    failures = 0
                    yield answer
                    if settled(answer.value):
                        return
            failures += 1  # The stream ended and the lease is not settled; look again behind the last event.
        except CliError as error:
            if not is_passing(error):
                raise
            failures += 1
            if error.status is None:  # An API that answers can still be polled, so there is no outage.
                client.outage.failed(error, next_try_in=pause, tries_for=outage_seconds_max)
        last_id = parser.last_id
        if parser.retry_ms is not None:
            pause = min(parser.retry_ms / 1_000, RECONNECT_SECONDS_MAX)
        wait(pause)
    yield from _polled(client, lease_id, settled, wait=wait, outage_seconds_max=outage_seconds_max)


def _streamed(client: Client, lease_id: str, parser: EventParser) -> Generator[Answer[LeaseView], None, None]:
    """The lease, read again after each event of one stream that says that its status changed."""
    path = f"/v1/leases/{lease_id}"
    try:
        with client.stream(f"{path}/events", last_event_id=parser.last_id) as stream:
            for chunk in stream.chunks:
                for event in parser.feed(chunk):
                    if event.name not in _NOT_STATUS:
                        yield client.get(path, LeaseView)
    except (ValueError, httpx.StreamError) as error:
        raise not_the_api(f"The event stream of {lease_id} cannot be read: {error}.") from None


def _polled(
    client: Client,
    lease_id: str,
    settled: Settled,
    *,
    wait: Callable[[float], Any],
    outage_seconds_max: float,
) -> Iterator[Answer[LeaseView]]:
    answered = client.clock.seconds()
    while True:
        try:
            answer = client.get(f"/v1/leases/{lease_id}", LeaseView)
        except CliError as error:
            if not is_passing(error) or client.clock.seconds() - answered >= outage_seconds_max:
                raise
        else:
            answered = client.clock.seconds()
            yield answer
            if settled(answer.value):
                return
        wait(POLL_SECONDS)


def is_passing(error: CliError) -> bool:
    """Whether a later try may succeed: there was no answer, or one of 429 or 5xx."""
    return error.status is None or error.status == 429 or error.status >= 500


# The screen


class Board(Protocol):
    """Where progress shows."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def update(self, answer: Answer[LeaseView]) -> None: ...


def drawn(leases: Sequence[LeaseView], now: datetime) -> RenderableType:
    """A bar for each lease with the word for its state, and below it what happens now."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, overflow="ellipsis", max_width=20)
    made.add_column(overflow="fold")
    for lease in leases:
        status = lease.status
        _, style = mark_of(lease)
        line = Text.assemble(
            _bar(lease, style),
            (f"  {_state_and_steps(lease)}", style),
            (f"  {_elapsed(lease, now)}", "dim"),
        )
        made.add_row(Text(lease.name, style="bold"), line)
        made.add_row("", Text(status.message))
    return made


def _bar(lease: LeaseView, style: str) -> Text:
    """Thick for what is done and thin for what is left, so that it reads without colours as well.

    The tip of a bar shows its direction: to the right while the machine comes up, to the left while it is ending.
    """
    state, done, total = lease.state, lease.status.steps_done, lease.status.steps_total
    if state == "ended":
        return Text("─" * BAR_WIDTH, style="dim")
    if state == "ending":
        return Text.assemble(
            ("━" * (BAR_WIDTH // 2), style), ("◂", style), ("─" * (BAR_WIDTH // 2 - 1), "dim")
        )
    width = BAR_WIDTH * done // total if total else 0
    if width == BAR_WIDTH:
        return Text("━" * width, style=style)
    return Text.assemble(("━" * width, style), ("▸", style), ("─" * (BAR_WIDTH - width - 1), "dim"))


def _state_and_steps(lease: LeaseView) -> str:
    """The state, with the steps done where they say something: on the way to a machine that is ready."""
    word, status = word_of(lease), lease.status
    if lease.state in ("ending", "ended"):
        return word
    return f"{word} {status.steps_done}/{status.steps_total}"


def _elapsed(lease: LeaseView, now: datetime) -> str:
    """From the request until the lease is ready or over; until now while it is neither.

    Of a lease that waits for another machine: since nobody pays for it.
    """
    if lease.paused_since is not None and not is_decided(lease):
        return span(now - lease.paused_since)
    until = lease.ended_at or lease.billed_until or lease.ready_at or now
    return span(until - lease.created_at)


class Bars:
    """For people at a terminal."""

    def __init__(
        self, screen: Console, answers: Sequence[Answer[LeaseView]], now: Callable[[], datetime]
    ) -> None:
        self._leases: dict[str, LeaseView] = {answer.value.id: answer.cleaned() for answer in answers}
        self._now = now
        self._live = Live(get_renderable=self._draw, console=screen, refresh_per_second=8)

    def _draw(self) -> RenderableType:
        return drawn(list(self._leases.values()), self._now())

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def update(self, answer: Answer[LeaseView]) -> None:
        self._leases[answer.value.id] = answer.cleaned()


class Lines:
    """For files, pipes and CI: one line when something changes, nothing that moves."""

    def __init__(self, screen: Console, now: Callable[[], datetime]) -> None:
        self._screen = screen
        self._now = now
        self._printed: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, answer: Answer[LeaseView]) -> None:
        lease, status = answer.value, answer.value.status
        news = (_state_and_steps(lease), status.message)
        if self._printed.get(lease.id) == news:
            return
        self._printed[lease.id] = news
        text = f"{self._now():%H:%M:%S}  {lease.name}  {_state_and_steps(lease)}  {status.message}"
        self._screen.print(clean(text), soft_wrap=True)


class Silence:
    """For `--quiet`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, answer: Answer[LeaseView]) -> None:
        pass


def board(
    screen: Console, leases: Sequence[Answer[LeaseView]], now: Callable[[], datetime], *, quiet: bool
) -> Board:
    if quiet:
        return Silence()
    return Bars(screen, leases, now) if screen.is_terminal else Lines(screen, now)


@dataclass(frozen=True, slots=True)
class _Way:
    """How leases are watched: what every watching thread needs."""

    client: Client
    settled: Settled
    outage_seconds_max: float


@dataclass(frozen=True, slots=True)
class _News:
    """What a watching thread reports."""

    lease_id: str
    answer: Answer[LeaseView] | None = None
    trouble: Exception | None = None
    done: bool = False


End = Answer[LeaseView] | CliError
"""How the watch of a lease ended: the last answer, or why it could not be watched."""


def watch(
    client: Client,
    leases: Sequence[Answer[LeaseView]],
    settled: Settled,
    on: Board,
    *,
    outage_seconds_max: float = OUTAGE_SECONDS_MAX,
) -> Mapping[str, End]:
    """Watch all leases at once until each is settled or cannot be watched. Returns the end of each, by its id."""
    way = _Way(client, settled, outage_seconds_max)
    news: SimpleQueue[_News] = SimpleQueue()
    stop = threading.Event()
    ends: dict[str, End] = {answer.value.id: answer for answer in leases}
    open_ids = set()
    with on:
        for answer in leases:
            on.update(answer)
            if not settled(answer.value):
                open_ids.add(answer.value.id)
                # Daemon threads: an interrupted watch ends at once and does not wait for a quiet stream.
                threading.Thread(target=_report, args=(way, answer.value.id, news, stop), daemon=True).start()
        try:
            while open_ids:
                _take(news.get(), ends, open_ids, on)
        finally:
            stop.set()
    return ends


def _take(one: _News, ends: dict[str, End], open_ids: set[str], on: Board) -> None:
    if one.answer is not None:
        ends[one.lease_id] = one.answer
        on.update(one.answer)
    elif isinstance(one.trouble, CliError):
        ends[one.lease_id] = one.trouble
    elif one.trouble is not None:
        raise one.trouble  # An error of ours in the other thread; it belongs on the screen, not in a bar.
    if one.done:
        open_ids.discard(one.lease_id)


def _report(way: _Way, lease_id: str, news: SimpleQueue[_News], stop: threading.Event) -> None:
    try:
        for answer in follow(
            way.client,
            lease_id,
            way.settled,
            wait=partial(way.client.clock.wait, stop),
            outage_seconds_max=way.outage_seconds_max,
        ):
            if stop.is_set():
                return
            news.put(_News(lease_id, answer=answer))
        news.put(_News(lease_id, done=True))
    except Exception as error:  # noqa: BLE001 - The watching thread has to hear of any error, or it waits forever.
        news.put(_News(lease_id, trouble=error, done=True))
