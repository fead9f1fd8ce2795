"""Workers that stall in a call, are killed there, or keep what they hold while it lasts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class Stall:
    """Calls wait here until they may go on."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self.reached, self.over = asyncio.Event(), asyncio.Event()
        self._call = call

    async def __call__(self, *arguments: object, **named: object) -> object:
        self.reached.set()
        await self.over.wait()
        return await self._call(*arguments, **named)


async def kill(worker: asyncio.Task[Any]) -> None:
    """Nothing of a cancelled activation gives anything back, as when its process is killed."""
    worker.cancel()
    await asyncio.wait([worker])


class Beats:
    """The waits between renewals, which end when the test says so."""

    def __init__(self) -> None:
        self._asked, self._over = asyncio.Event(), asyncio.Event()

    async def sleep(self, _seconds: float) -> None:
        self._asked.set()
        await self._over.wait()
        self._over.clear()

    async def next(self) -> None:
        """End a wait, and return when what follows it is done."""
        # Otherwise a worker that renews nothing would be waited for for ever.
        async with asyncio.timeout(30):
            await self._asked.wait()
            self._asked.clear()
            self._over.set()
            await self._asked.wait()
