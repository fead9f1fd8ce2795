"""Watching leases on their way: events as they come, polling where events do not, bars or plain lines.

A stream breaks for many reasons that say nothing about the lease: a proxy closes what is quiet, a
replica is replaced, a laptop sleeps. So a broken stream is opened again behind the last event that
was seen; one that cannot be had is replaced by asking; and only an answer of the API decides.
"""

import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self, cast

import httpx
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from control_plane.cli.client import Client
from control_plane.cli.errors import CliError, network
from control_plane.cli.render import PHASES
from control_plane.cli.sse import EventParser
from control_plane.cli.wire import Lease
from control_plane.cli.words import clean, moment, span

STREAM_TRIES_MAX = 3
"""Streams in a row that broke before they told anything; then we poll."""
POLL_SECONDS = 2.0
POLL_FAILURES_MAX = 20
"""Asking in vain this often, each time with the client's own repetitions, is giving up."""
RECONNECT_SECONDS = 1.0
RECONNECT_SECONDS_MAX = 10.0
BAR_WIDTH = 28

_BESIDE = frozenset({"journal", "end"})
"""Events that say nothing about where the lease stands. A journal line gives the stream its position."""

Settled = Callable[[Lease], bool]


def is_decided(lease: Lease) -> bool:
    """Ready, or never going to be."""
    return lease["status"]["phase"] not in ("pending", "starting")


def is_ended(lease: Lease) -> bool:
    return lease["status"]["phase"] == "ended"


def is_ready(lease: Lease) -> bool:
    return lease["status"]["phase"] in ("ready", "unconfirmed")


def follow(
    client: Client, lease_id: str, settled: Settled, *, wait: Callable[[float], Any]
) -> Iterator[Lease]:
    """The lease every time it is told, until it is settled. Bounded only by the lease itself."""
    last_id, failures = "", 0
    while failures < STREAM_TRIES_MAX:
        pause = RECONNECT_SECONDS
        parser = EventParser()
        parser.last_id = last_id
        try:
            with closing(_told(client, lease_id, parser)) as told:
                for lease in told:
                    failures = 0
                    yield lease
                    if settled(lease):
                        return
            failures += 1  # The stream ended and the lease is not settled; look again behind the last event.
        except CliError as error:
            if not _is_passing(error):
                raise
            failures += 1
        last_id = parser.last_id
        if parser.retry_ms is not None:
            pause = min(parser.retry_ms / 1_000, RECONNECT_SECONDS_MAX)
        wait(pause)
    yield from _polled(client, lease_id, settled, wait=wait)


def _told(client: Client, lease_id: str, parser: EventParser) -> Generator[Lease, None, None]:
    """The leases that one stream tells."""
    path = f"/v1/leases/{lease_id}/events"
    try:
        with client.stream(path, last_event_id=parser.last_id) as stream:
            for chunk in stream.chunks:
                for event in parser.feed(chunk):
                    if event.name in _BESIDE:
                        continue
                    yield _lease_of(event.data) or client.get(f"/v1/leases/{lease_id}")
    except (ValueError, httpx.StreamError) as error:
        raise network(f"The event stream of {lease_id} cannot be read: {error}.") from None


def _lease_of(data: str) -> Lease | None:
    """The lease that an event carries; None when the event only says that something happened."""
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return cast("Lease", value) if isinstance(value, dict) and "status" in value and "id" in value else None


def _polled(
    client: Client, lease_id: str, settled: Settled, *, wait: Callable[[float], Any]
) -> Iterator[Lease]:
    failures = 0
    while True:
        try:
            lease: Lease = client.get(f"/v1/leases/{lease_id}")
        except CliError as error:
            failures += 1
            if not _is_passing(error) or failures >= POLL_FAILURES_MAX:
                raise
        else:
            failures = 0
            yield lease
            if settled(lease):
                return
        wait(POLL_SECONDS)


def _is_passing(error: CliError) -> bool:
    """Whether the failure says nothing about the lease: no answer, too many questions, or a fault on that side."""
    return error.status is None or error.status == 429 or error.status >= 500


# The screen


class Board(Protocol):
    """Where progress shows."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def update(self, lease: Lease) -> None: ...


def drawn(leases: Sequence[Lease], now: datetime) -> RenderableType:
    """A bar for each lease, and below it what happens now."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, overflow="ellipsis", max_width=20)
    made.add_column(overflow="fold")
    for lease in leases:
        status = lease["status"]
        _, style = PHASES.get(status["phase"], ("?", "default"))
        line = Text.assemble(
            _bar(status["steps_done"], status["steps_total"], style),
            f"  {status['steps_done']}/{status['steps_total']}",
            (f"  {_elapsed(lease, now)}", "dim"),
        )
        made.add_row(Text(lease["name"], style="bold"), line)
        made.add_row("", Text(status["message"], style=style))
    return made


def _bar(done: int, total: int, style: str) -> Text:
    """Thick for what is done, thin for what is left: it reads without colours as well."""
    width = BAR_WIDTH * done // total if total else 0
    return Text.assemble(("━" * width, style), ("─" * (BAR_WIDTH - width), "dim"))


def _elapsed(lease: Lease, now: datetime) -> str:
    """From the request to ready or gone; to now while it is neither."""
    until = lease["ended_at"] or lease["billed_until"] or lease["ready_at"]
    return span((moment(until) if until else now) - moment(lease["created_at"]))


class Bars:
    """For people at a terminal."""

    def __init__(self, screen: Console, leases: Sequence[Lease], now: Callable[[], datetime]) -> None:
        self._leases: dict[str, Lease] = {lease["id"]: clean(lease) for lease in leases}
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

    def update(self, lease: Lease) -> None:
        self._leases[lease["id"]] = clean(lease)


class Lines:
    """For files, pipes and CI: one line when something changes, nothing that moves."""

    def __init__(self, screen: Console, now: Callable[[], datetime]) -> None:
        self._screen = screen
        self._now = now
        self._said: dict[str, tuple[int, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, lease: Lease) -> None:
        status = lease["status"]
        news = (status["steps_done"], status["message"])
        if self._said.get(lease["id"]) == news:
            return
        self._said[lease["id"]] = news
        steps = f"{status['steps_done']}/{status['steps_total']}"
        text = f"{self._now():%H:%M:%S}  {lease['name']}  {steps}  {status['message']}"
        self._screen.print(clean(text), soft_wrap=True)


def board(screen: Console, leases: Sequence[Lease], now: Callable[[], datetime]) -> Board:
    return Bars(screen, leases, now) if screen.is_terminal else Lines(screen, now)


@dataclass(frozen=True, slots=True)
class _News:
    lease_id: str
    lease: Lease | None = None
    trouble: Exception | None = None
    done: bool = False


def watch(
    client: Client, leases: Sequence[Lease], settled: Settled, on: Board
) -> Mapping[str, Lease | CliError]:
    """Watch all at once until each is settled or cannot be watched; answers the last that is known of each."""
    news: SimpleQueue[_News] = SimpleQueue()
    stop = threading.Event()
    ends: dict[str, Lease | CliError] = {lease["id"]: lease for lease in leases}
    open_ids = set()
    with on:
        for lease in leases:
            on.update(lease)
            if not settled(lease):
                open_ids.add(lease["id"])
                # Daemons: an interrupted watch leaves at once and does not wait for a quiet stream.
                threading.Thread(
                    target=_reporting, args=(client, lease["id"], settled, news, stop), daemon=True
                ).start()
        try:
            while open_ids:
                _take(news.get(), ends, open_ids, on)
        finally:
            stop.set()
    return ends


def _take(one: _News, ends: dict[str, Lease | CliError], open_ids: set[str], on: Board) -> None:
    if one.lease is not None:
        ends[one.lease_id] = one.lease
        on.update(one.lease)
    elif isinstance(one.trouble, CliError):
        ends[one.lease_id] = one.trouble
    elif one.trouble is not None:
        raise one.trouble  # A fault of ours in the other thread; it belongs on the screen, not in a bar.
    if one.done:
        open_ids.discard(one.lease_id)


def _reporting(
    client: Client, lease_id: str, settled: Settled, news: SimpleQueue[_News], stop: threading.Event
) -> None:
    try:
        for lease in follow(client, lease_id, settled, wait=stop.wait):
            if stop.is_set():
                return
            news.put(_News(lease_id, lease=lease))
        news.put(_News(lease_id, done=True))
    except Exception as error:  # noqa: BLE001 - Whatever it is, the watching thread must hear of it or hang.
        news.put(_News(lease_id, trouble=error, done=True))
