"""The clock of a process that works with the database's time. The rules are in `domain/clock.py`."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import text

from control_plane.db.engine import Database
from control_plane.db.rows import read
from control_plane.domain.clock import Anchor, Reckoning, anchor, reckoned

READINGS = 3
"""Statements per reading; the one with the shortest round trip counts. The first one may have to be prepared."""

_READ = text("SELECT clock_timestamp()")


class ClockNotRead(ConnectionError):  # noqa: N818 - like every ConnectionError, it says what is the case
    """The database's clock has not been read yet. It counts as trouble with the database, which passes."""


class Source(Protocol):
    """Where the time is read."""

    async def read(self, stopwatch: Callable[[], float]) -> Anchor: ...


class PostgresTime:
    """The clock of the database server."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def read(self, stopwatch: Callable[[], float]) -> Anchor:
        """The reading with the smallest error. Raises what the database raises."""
        found = []
        async with self._db.reading() as connection:
            for _ in range(READINGS):
                asked = stopwatch()
                (at,) = await read(connection, _READ, datetime)
                found.append(anchor(asked, stopwatch(), at))
        return min(found, key=lambda reading: reading.error)


class DatabaseClock:
    """Tells the database's time. Somebody calls `reread` every now and then; `now` itself never waits."""

    def __init__(
        self, source: Source, *, host: Callable[[], datetime], stopwatch: Callable[[], float] = time.monotonic
    ) -> None:
        """`host` is the host's own clock, `stopwatch` counts seconds and is never set."""
        self._source = source
        self._host = host
        self._stopwatch = stopwatch
        self._known: Reckoning | None = None
        self._last: datetime | None = None

    async def reread(self) -> None:
        """Read the database's clock. Raises what the database raises; then the last reading stays in use."""
        found = await self._source.read(self._stopwatch)
        self._known = reckoned(self._known, found, host=self._host(), stopwatch=self._stopwatch())

    @property
    def is_set(self) -> bool:
        """Whether the database's clock has been read."""
        return self._known is not None

    def now(self) -> datetime:
        """The database's time, in UTC. It never goes back. Raises ClockNotRead before the first reading."""
        self._last = self._reckoning.now(self._stopwatch(), self._last)
        return self._last

    def refusal(self) -> str | None:
        """Why this process must not work now, as a sentence; None when its time is right."""
        if self._known is None:
            return "The database's clock has not been read yet."
        return self._known.refusal(self._host(), self.now(), self._stopwatch())

    def difference(self) -> timedelta:
        """How far the host's clock is ahead of the database's; zero before the first reading."""
        if self._known is None:
            return timedelta()
        return self._known.difference(self._host(), self._stopwatch())

    @property
    def _reckoning(self) -> Reckoning:
        if self._known is None:
            raise ClockNotRead("the database's clock has not been read yet")
        return self._known
