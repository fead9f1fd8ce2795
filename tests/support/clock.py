"""A virtual clock: days pass in seconds, and nothing waits."""

import asyncio
from datetime import UTC, datetime, timedelta

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
    """Real time, where a stage expects a clock: for what a virtual one cannot show."""

    def __init__(self) -> None:
        super().__init__(utc_now())

    def now(self) -> datetime:
        return utc_now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
