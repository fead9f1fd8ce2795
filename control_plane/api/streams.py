"""Server-sent events: the open streams of a process, and what wakes them.

An idle stream holds no connection to the database, no timer, and nothing but its place. It is woken by a notification
that its lease has changed (services/changes.py), by one clock for all streams of the process, by a change of what
its reader may do, or by the end of the process.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec
from litestar.types import Receive, Scope, Send
from prometheus_client import Gauge

from control_plane.api import observe
from control_plane.api.places import Places
from control_plane.domain.access import Principal, confined
from control_plane.domain.ids import ApiKeyId, LeaseId, OrganizationId
from control_plane.services import health, principals
from control_plane.services.changes import Changes
from control_plane.world import World

TICK_SECONDS = 1.0
POLL_TICKS = 5
"""While changes are not heard, every stream looks at the database after so many ticks."""
HEARTBEAT_TICKS = 15
"""A comment is sent after so many ticks without an event, because proxies drop silent connections."""
CHECK_TICKS_MAX = 300
"""A stream looks at the database at least this often, in case it was not told of a change."""
CLOSE_TICKS_MAX = 2
CLOSE_SECONDS_MAX = 2.0
"""A stream that has to end and cannot send its last word within this time is cut."""
RETRY_MS = 2_000
"""How long a client that lost the stream should wait before it reconnects."""

Key = TypeVar("Key")
Sleep = Callable[[float], Awaitable[None]]
Emit = Callable[[bytes], Awaitable[None]]


def event(name: str, data: Any, *, event_id: str | None = None) -> bytes:
    head = b"" if event_id is None else b"id: " + event_id.encode() + b"\n"
    return head + b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


RETRY = b"retry: %d\n\n" % RETRY_MS
HEARTBEAT = b": heartbeat\n\n"


class Closing(StrEnum):
    """Why a stream has to end, other than by what its lease does."""

    LEASE_GONE = "lease_gone"
    REVOKED = "revoked"
    SERVER_STOPS = "server_stops"


class Stream:
    """One open stream: what it has to do next."""

    __slots__ = (
        "_closing_since",
        "_heartbeat_at",
        "_look_at",
        "_news",
        "_tick",
        "beat",
        "closing",
        "cut",
        "key",
        "lease_id",
        "organization_id",
        "principal",
        "stale",
    )

    def __init__(self, lease_id: LeaseId, principal: Principal, tick: int) -> None:
        self.lease_id = lease_id
        self.key = ApiKeyId(principal.credential_id)
        self.organization_id = principal.organization_id
        self.principal = principal
        """What its reader may do, as it was read last."""
        self.stale = True
        """Whether the lease may have changed since the stream looked."""
        self.beat = False
        """Whether a heartbeat is due."""
        self.closing: Closing | None = None
        self.cut: Callable[[], object] = _nothing
        """Ends the stream without a last word, for a client that does not read."""
        self._closing_since = 0
        self._news = asyncio.Event()
        self._tick = tick
        self._heartbeat_at = tick + HEARTBEAT_TICKS
        self._look_at = tick + CHECK_TICKS_MAX

    def wake(self) -> None:
        """The lease may have changed."""
        self.stale = True
        self._news.set()

    def done_reading(self, _: object = None) -> None:
        """What the stream asked the database is answered."""
        self._news.set()

    def now_may(self, principal: Principal | None) -> None:
        """What the stream's reader may do now; None when its key is valid no more."""
        if principal is None:
            self.close(Closing.REVOKED)
            return
        principal = confined(principal, self.principal.confined_to)
        if principal.where != self.principal.where:
            self.principal = principal
            self.wake()

    def close(self, why: Closing) -> None:
        if self.closing is None:
            self.closing, self._closing_since = why, self._tick
        self._news.set()

    def look_within(self, seconds: float) -> None:
        """Look at the lease again after so many seconds, even if nothing wakes the stream."""
        self._look_at = self._tick + min(CHECK_TICKS_MAX, max(1, int(seconds / TICK_SECONDS) + 1))

    def sent(self) -> None:
        """Something was sent, so the next heartbeat has time."""
        self.beat = False
        self._heartbeat_at = self._tick + HEARTBEAT_TICKS

    def tick(self, now: int) -> None:
        self._tick = now
        if self.closing is not None and now >= self._closing_since + CLOSE_TICKS_MAX:
            self.cut()
        if now >= self._look_at:
            self._look_at = now + CHECK_TICKS_MAX
            self.wake()
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_TICKS
            self.beat = True
            self._news.set()

    async def news(self) -> None:
        """Wait until there is something to do."""
        await self._news.wait()
        self._news.clear()


class Streams:
    """The open streams of a process."""

    def __init__(
        self, world: World, places: Places, changes: Changes, gauge: Gauge, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._world = world
        self._places = places
        self._changes = changes
        self._gauge = gauge
        self._sleep = sleep
        self._of_lease: defaultdict[LeaseId, set[Stream]] = defaultdict(set)
        self._of_key: defaultdict[ApiKeyId, set[Stream]] = defaultdict(set)
        self._tick = 0
        self._clock: asyncio.Task[None] | None = None
        self._unchecked = set[ApiKeyId]()
        """Keys whose streams may have lost what they may see."""
        self._checking: asyncio.Task[None] | None = None
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def opened(self, lease_id: LeaseId, principal: Principal) -> Iterator[Stream]:
        """A stream with its place. Raises ApiError when there is none left."""
        with self._places.take(principal):
            stream = Stream(lease_id, principal, self._tick)
            if self._stopping:
                stream.close(Closing.SERVER_STOPS)
            self._add(stream)
            try:
                yield stream
            finally:
                self._remove(stream)

    def _add(self, stream: Stream) -> None:
        self._of_lease[stream.lease_id].add(stream)
        self._of_key[stream.key].add(stream)
        self._gauge.inc()
        self._empty.clear()
        if self._clock is None:
            self._clock = asyncio.create_task(self._run_clock())

    def _remove(self, stream: Stream) -> None:
        _discard(self._of_lease, stream.lease_id, stream)
        _discard(self._of_key, stream.key, stream)
        self._gauge.dec()
        if not self._of_key and self._clock is not None:
            self._clock.cancel()
            self._clock = None
            if self._checking is not None:
                self._checking.cancel()
            self._empty.set()

    def _every(self) -> list[Stream]:
        return [stream for streams in self._of_key.values() for stream in streams]

    # What wakes them

    def lease_changed(self, lease_id: LeaseId) -> None:
        for stream in self._of_lease.get(lease_id, ()):
            stream.wake()

    def key_changed(self, key: ApiKeyId) -> None:
        """A key was revoked or ends sooner: look whether its streams may go on."""
        if key in self._of_key:
            self._check_soon({key})

    def subject_changed(self, subject: UUID) -> None:
        """The state or the roles of a user or a service account have changed: look what its streams may still see."""
        keys = {
            key for key, streams in self._of_key.items() if _first(streams).principal.subject.id == subject
        }
        if keys:
            self._check_soon(keys)

    def organization_closed(self, organization_id: OrganizationId) -> None:
        for stream in self._every():
            if stream.organization_id == organization_id:
                stream.close(Closing.REVOKED)

    def anything_changed(self) -> None:
        """Changes were missed: look at every lease."""
        for stream in self._every():
            stream.wake()

    async def stop(self) -> None:
        """End every stream, and every one that is still to come; returns when all are closed."""
        self._stopping = True
        for stream in self._every():
            stream.close(Closing.SERVER_STOPS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), CLOSE_SECONDS_MAX)
        for stream in self._every():
            stream.cut()
        await self._empty.wait()

    async def _run_clock(self) -> None:
        """One clock for all streams, which runs while there are any."""
        while True:
            await self._sleep(TICK_SECONDS)
            self._tick += 1
            if not self._changes.listening and self._tick % POLL_TICKS == 0:
                self.anything_changed()
            # Every second, because it takes longer to find out that changes are not heard. Not awaited: the clock goes
            # on, and with it the heartbeats, while the database does not answer.
            self._check_soon(set(self._of_key))
            for stream in self._every():
                stream.tick(self._tick)

    def _check_soon(self, keys: set[ApiKeyId]) -> None:
        """Look at these keys, and at those whose check failed, without waiting for the clock."""
        self._unchecked |= keys
        if self._unchecked and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._check_keys())

    async def _check_keys(self) -> None:
        while self._unchecked:
            unchecked, self._unchecked = self._unchecked, set()
            try:
                known = await principals.of_keys(self._world, unchecked)
            except Exception as error:  # noqa: BLE001 - The clock of all streams goes on; the next tick tries again.
                self._unchecked |= unchecked
                if not health.is_database_trouble(error):
                    observe.log.warning("stream_keys_unchecked", error=type(error).__name__)
                return
            for key in unchecked:
                for stream in self._of_key.get(key, ()):
                    stream.now_may(known.get(key))


def _first(streams: set[Stream]) -> Stream:
    return next(iter(streams))


def _discard(known: dict[Key, set[Stream]], key: Key, stream: Stream) -> None:
    known[key].discard(stream)
    if not known[key]:
        del known[key]


class Follower(Protocol):
    """What a stream says. `events.py` has the one there is."""

    async def begin(self) -> None:
        """Look for the first time. Raises ApiError, for an answer that is no stream."""

    async def run(self, emit: Emit) -> None:
        """Send events until there are no more, or the stream is closing."""


class EventStream:
    """An ASGI answer that ends with its events or when its client leaves, and then frees its place."""

    def __init__(
        self, streams: Streams, lease_id: LeaseId, principal: Principal, follow: Callable[[Stream], Follower]
    ) -> None:
        self._streams = streams
        self._lease_id = lease_id
        self._principal = principal
        self._follow = follow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.opened(self._lease_id, self._principal) as stream:
            follower = self._follow(stream)
            await follower.begin()
            sending = asyncio.create_task(self._send(scope, send, follower))
            leaving = asyncio.create_task(_wait_until_left(receive))
            stream.cut = sending.cancel
            try:
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, leaving):
                    task.cancel()
                done = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(done[0], Exception):
            raise done[0]

    async def _send(self, scope: Scope, send: Send, follower: Follower) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        observe.stream_begins(scope)

        async def emit(chunk: bytes) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        await emit(RETRY)
        await follower.run(emit)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _nothing() -> None:
    """What cuts a stream that has not begun: it will see that it is closing."""
