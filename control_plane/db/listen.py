"""Listens for PostgreSQL's notifications (LISTEN) on one connection of its own, for as long as the process runs.

Notifications that are sent while nobody listens are lost. So whoever depends on them has to look at everything again
after each new connection, and must not rely on them while there is none. The connection has to reach PostgreSQL
itself, or a pooler in session mode: in transaction mode a pooler drops LISTEN silently.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from control_plane.db.connect import connect
from control_plane.domain.backoff import delay

PING_SECONDS = 5.0
"""A connection whose other end has vanished shows no error by itself, so it is asked for an answer."""
ANSWER_SECONDS_MAX = 5.0
RECONNECT_FIRST = timedelta(milliseconds=200)
RECONNECT_CEILING = timedelta(seconds=5)
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""What a connection that fails or cannot be made raises. TimeoutError is an OSError."""

Handler = Callable[[str], None]
"""Takes the payload of a notification."""
Sleep = Callable[[float], Awaitable[None]]


class Listener:
    def __init__(self, url: str, *, role: str, sleep: Sleep = asyncio.sleep) -> None:
        self._url = url
        self._settings = {"application_name": "splitplane listener", "role": role}
        self._sleep = sleep
        self._handlers: dict[str, Handler] = {}
        self._on_connected: Callable[[], None] = _nothing
        self.listening = False
        """Whether notifications arrive now, as far as is known."""

    def on(self, channel: str, handler: Handler) -> None:
        """Call `handler` with the payload of every notification on this channel. Call this before `run`."""
        self._handlers[channel] = handler

    def on_connected(self, handler: Callable[[], None]) -> None:
        """Call `handler` after each new connection: anything may have changed meanwhile."""
        self._on_connected = handler

    async def run(self) -> None:
        """Listen until cancelled. A lost connection is made again, soon at first and then every few seconds."""
        failures = 0
        while True:
            try:
                async with self._connected() as (connection, lost):
                    failures = 0
                    await self._stay(connection, lost)
            except _LOST:
                pass  # Whatever the reason, the answer is another connection.
            failures += 1
            pause = delay(failures, first=RECONNECT_FIRST, ceiling=RECONNECT_CEILING)
            await self._sleep(pause.total_seconds())

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Any, asyncio.Event]]:
        lost = asyncio.Event()
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            connection = await connect(self._url, settings=self._settings)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            for channel in self._handlers:
                await asyncio.wait_for(connection.add_listener(channel, self._take), ANSWER_SECONDS_MAX)
            self.listening = True
            self._on_connected()
            yield connection, lost
        finally:
            self.listening = False
            connection.terminate()

    async def _stay(self, connection: Any, lost: asyncio.Event) -> None:
        """Return when the connection is lost, or raise when it does not answer."""
        while not lost.is_set():
            await connection.fetchval("SELECT 1", timeout=ANSWER_SECONDS_MAX)
            waiting = [asyncio.ensure_future(self._sleep(PING_SECONDS)), asyncio.ensure_future(lost.wait())]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()

    def _take(self, _connection: Any, _process: int, channel: str, payload: str) -> None:
        self._handlers[channel](payload)


def _nothing() -> None:
    """What is done after a connection when nobody asked for anything."""
