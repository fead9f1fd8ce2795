"""Server-sent events of one lease: its status at once and after every change, and its journal as it grows.

A `journal` event has the line's number as its id, so that a client which returns with `Last-Event-ID` gets
every line once. A stream polls the database, so that it shows only what was committed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from litestar.types import Receive, Scope, Send
from prometheus_client import Gauge

from control_plane.api.errors import ApiError

POLL_SECONDS = 1.0
HEARTBEAT_POLLS = 15
"""A comment is sent after so many polls without an event, because proxies drop silent connections."""
LINES_PER_POLL = 200
RETRY_MS = 2_000
"""How long a client that lost the stream should wait before it reconnects."""

Sleep = Callable[[float], Awaitable[None]]


def event(name: str, data: Any, *, event_id: int | None = None) -> bytes:
    head = b"" if event_id is None else b"id: %d\n" % event_id
    return head + b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


RETRY = b"retry: %d\n\n" % RETRY_MS
HEARTBEAT = b": heartbeat\n\n"


class Streams:
    """The open streams of a process. Their number is limited, because each one polls the database."""

    def __init__(self, *, most: int, gauge: Gauge, sleep: Sleep = asyncio.sleep) -> None:
        self.sleep = sleep
        self._most = most
        self._gauge = gauge
        self._open = 0

    def open(self, chunks: AsyncIterator[bytes]) -> "EventStream":
        if self._open >= self._most:
            raise ApiError("streams_exhausted", f"{self._most} event streams are open on this server.")
        return EventStream(self, chunks)

    def _count(self, change: int) -> None:
        self._open += change
        self._gauge.set(self._open)


class EventStream:
    """An ASGI answer that ends with its events or when its client leaves, and then frees its place."""

    def __init__(self, streams: Streams, chunks: Any) -> None:
        self._streams = streams
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        self._streams._count(1)  # noqa: SLF001 - one class in two parts
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams._count(-1)  # noqa: SLF001
            for task in (sending, leaving):
                task.cancel()
            done = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(done[0], Exception):
            raise done[0]

    async def _send(self, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
