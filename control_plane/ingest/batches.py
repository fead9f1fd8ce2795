"""Adds the samples of many machines with one statement. What does not fit in the queue is refused at once."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from control_plane.db.samples import NewSample

LINGER_SECONDS = 0.1
"""How long the first sample of a batch waits for others."""
BATCH_MAX = 500
"""Samples in one statement, unless a single delivery has more."""
QUEUE_MAX = 10_000
"""Samples that wait: 100 MB at 10 KB each."""
WRITERS = 2
"""Statements that run at the same time."""

Write = Callable[[Sequence[NewSample]], Awaitable[int]]


class QueueFullError(Exception):
    """The database does not keep up: the queue is full."""


@dataclass(slots=True)
class _Waiting:
    samples: Sequence[NewSample]
    stored: asyncio.Future[None]


class Batches:
    def __init__(
        self,
        write: Write,
        *,
        is_bad: Callable[[BaseException], bool],
        noted: Callable[[int, int, float], None],
    ) -> None:
        """`is_bad` tells whether an error is about the values; `noted` is called after each statement: how many
        samples were new, how many were stored already, and how many seconds it took.
        """
        self._write = write
        self._is_bad = is_bad
        self._noted = noted
        self._queue: deque[_Waiting] = deque()
        self.queued = 0
        """Samples that wait."""
        self._came = asyncio.Event()
        self._stopping = False

    async def store(self, samples: Sequence[NewSample]) -> None:
        """Wait until these samples are committed. Raises QueueFullError, and what the database raises."""
        if self.queued + len(samples) > QUEUE_MAX or self._stopping:
            raise QueueFullError
        waiting = _Waiting(samples, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self.queued += len(samples)
        self._came.set()
        await waiting.stored

    async def run(self) -> None:
        """Write until `stop`."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write_all())

    def stop(self) -> None:
        """Write what waits, take no more, and end `run`."""
        self._stopping = True
        self._came.set()

    async def _write_all(self) -> None:
        while True:
            if not self._queue:
                if self._stopping:
                    return
                self._came.clear()
                await self._came.wait()
                if not self._stopping:
                    await asyncio.sleep(LINGER_SECONDS)
            batch = self._next()
            if batch:
                await self._write_batch(batch)

    def _next(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].samples) <= BATCH_MAX):
            batch.append(self._queue.popleft())
            size += len(batch[-1].samples)
        self.queued -= size
        return batch

    async def _write_batch(self, batch: list[_Waiting]) -> None:
        """Write a batch; if the database refuses a value, its deliveries one by one, so that only the bad one fails."""
        samples = [sample for waiting in batch for sample in waiting.samples]
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            new = await self._write(samples)
        except Exception as error:  # noqa: BLE001 - passed on to every request that waits
            if len(batch) > 1 and self._is_bad(error):
                for waiting in batch:
                    await self._write_batch([waiting])
                return
            for waiting in batch:
                if not waiting.stored.done():
                    waiting.stored.set_exception(error)
            return
        self._noted(new, len(samples) - new, loop.time() - began)
        for waiting in batch:
            if not waiting.stored.done():
                waiting.stored.set_result(None)
