"""Tells other processes which leases a commit changed: PostgreSQL's NOTIFY, sent after the commit and not in it.

A transaction that contains NOTIFY holds a lock of the whole cluster until its commit is on the disk, so that such
transactions commit one after the other (docs/decisions/0017-event-streams.md has figures). So triggers only say in a
NOTICE to the writer itself which leases it changes, and the writer's process sends the notification once the
transaction is committed, from a connection whose commits do not wait for the disk. If the process dies in between, the
notification is lost. Therefore a process that starts says that anything may have changed, and streams look at
their leases from time to time in any case.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import asyncpg

from control_plane.db.connect import connect

LEASES = "splitplane_leases"
"""The channel, and the first word of the triggers' notices."""
PLACING = "splitplane_placing"
"""The channel that says that a lease was created, and waits for a machine; also the first word of its notice."""
ANYTHING = "*"
"""The payload that says that any lease may have changed."""
WINDOW_SECONDS = 0.01
"""Changes of this time are sent together."""
IDS_PER_PAYLOAD = 200
"""A payload has 8,000 bytes at most, and an id 36."""
RETRY_SECONDS = 1.0
ANSWER_SECONDS_MAX = 5.0
STOP_SECONDS = 2.0
_FAILED = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest(CAST($2 AS text[])) payload"


class Notice(Protocol):
    """What the server says to the client of a connection, beside its answers."""

    message: str


class Driver(Protocol):
    """The part of a connection of asyncpg's that is used here."""

    def add_log_listener(self, callback: Callable[[object, Notice], None], /) -> None: ...


class Changed(set[str]):
    """The leases that the transaction of one connection has changed, as the triggers' notices name them, and PLACING if
    it created one.
    """

    def listen(self, connection: Driver) -> None:
        """Collect the notices of this connection."""
        connection.add_log_listener(self._take)

    def take(self) -> set[str]:
        """All of them, once."""
        taken = set(self)
        self.clear()
        return taken

    def _take(self, _connection: object, notice: Notice) -> None:
        channel, _, ids = notice.message.partition(" ")
        if channel == LEASES:
            self.update(ids.split())
        elif channel == PLACING:
            self.add(PLACING)


class Bell:
    def __init__(self, url: str, *, settings: Mapping[str, str]) -> None:
        self._url = url
        self._settings = {**settings, "application_name": "splitplane bell", "synchronous_commit": "off"}
        self._changed: set[str] = {ANYTHING}
        self._ringing: asyncio.Task[None] | None = None
        self._connection: Any = None

    def ring(self, changed: set[str]) -> None:
        """Tell others of these leases, soon. The first time, anything may have changed before."""
        if changed:
            self._changed |= changed
            if self._ringing is None:
                self._ringing = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._changed:
                await asyncio.sleep(WINDOW_SECONDS)
                await self._send_all()
        finally:
            self._ringing = None

    async def _send_all(self) -> None:
        sending, self._changed = self._changed, set()
        try:
            await self._send(LEASES, payloads(sending - {PLACING}))
            if sending & {PLACING, ANYTHING}:
                await self._send(PLACING, [""])
        except _FAILED:
            self._changed |= sending
            self._drop()
            await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, channel: str, payloads: list[str]) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._url, settings=self._settings)
        await self._connection.execute(_NOTIFY, channel, payloads, timeout=ANSWER_SECONDS_MAX)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """Send what is left, if the database answers soon."""
        ringing = self._ringing
        if ringing is not None:
            await asyncio.wait({ringing}, timeout=STOP_SECONDS)
            ringing.cancel()
        self._drop()


def payloads(changed: set[str]) -> list[str]:
    """The notifications that tell of these leases."""
    if ANYTHING in changed:
        return [ANYTHING]
    ids = sorted(changed)
    return [" ".join(ids[at : at + IDS_PER_PAYLOAD]) for at in range(0, len(ids), IDS_PER_PAYLOAD)]
