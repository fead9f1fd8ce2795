"""What tests of notifications share: a listener on a test's database, and pauses that a test ends by hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from control_plane.db.engine import Role
from control_plane.db.listen import Listener


class Pauses:
    """A sleep that lasts until the test ends it."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        """The seconds of each pause, in order."""
        self._waiting: list[asyncio.Event] = []

    async def __call__(self, seconds: float) -> None:
        event = asyncio.Event()
        self.asked.append(seconds)
        self._waiting.append(event)
        await event.wait()

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def end(self) -> None:
        """End all pauses there are now."""
        for event in self._waiting:
            event.set()
        self._waiting.clear()


async def until(seen: Callable[[], object], *, seconds_max: float = 20.0) -> None:
    """Let other tasks run until it is so: answers of a real database come when they come."""
    async with asyncio.timeout(seconds_max):
        while not seen():  # noqa: ASYNC110 - what is awaited is whatever the test looks at
            await asyncio.sleep(0)


@asynccontextmanager
async def running(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Something that runs until it is cancelled, such as a listener, while the block runs."""
    task = asyncio.ensure_future(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def listener(url: str, pauses: Pauses) -> Listener:
    return Listener(url, role=Role.API.value, sleep=pauses)
