"""A virtual clock: days pass in seconds, and nothing waits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from control_plane.db.clock import DatabaseClock
from control_plane.domain.clock import Anchor, anchor
from control_plane.world import utc_now

START = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


class Clock:
    """A clock that stands still until a test advances it; a sleep advances it too."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not run backwards")
        self._now += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        """Advance at once and let other tasks run."""
        self.advance(max(0.0, seconds))
        await asyncio.sleep(0)


class WallClock(Clock):
    """Real time, where a stage expects a clock: for what a virtual one cannot show. `advance` sets it ahead."""

    def __init__(self, *, behind: timedelta = timedelta()) -> None:
        super().__init__(utc_now() - behind)
        self._started = self._now + behind

    def now(self) -> datetime:
        return utc_now() + (self._now - self._started)

    def catch_up(self) -> None:
        """From now on it shows the real time, which it has to be behind."""
        self.advance((self._started - self._now).total_seconds())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Host:
    """A host beside the database, whose clock is the virtual one. Its own clock may be wrong."""

    clock: Clock
    ahead: float = 0.0
    """Seconds by which the host's clock is ahead of the database's."""

    async def read(self, stopwatch: Callable[[], float]) -> Anchor:
        return anchor(stopwatch(), stopwatch(), self.clock.now())

    def now(self) -> datetime:
        return self.clock.now() + timedelta(seconds=self.ahead)

    def stopwatch(self) -> float:
        return (self.clock.now() - START).total_seconds()

    async def database_clock(self) -> DatabaseClock:
        """The clock of a process on this host."""
        made = DatabaseClock(self, host=self.now, stopwatch=self.stopwatch)
        await made.reread()
        return made
