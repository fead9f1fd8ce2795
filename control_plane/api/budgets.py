"""Keeps the rates of API keys and organizations over all API processes, beside the requests.

Each process reports what it gave out and has its stocks refilled, several times a second, in one statement for all
callers that need it. A request never waits for that. While the database does not answer in time, each process lives on
its own share of every rate (`limits.py`).
"""

import asyncio
from collections.abc import Hashable, Sequence
from uuid import UUID

from control_plane.api.limits import Limiter
from control_plane.domain.request_budget import Ask, Given
from control_plane.services import request_budgets
from control_plane.world import World

EVERY_SECONDS = 0.25
ANSWER_SECONDS_MAX = 1.0
ASKS_MAX = 1_000
"""Buckets of each limiter per statement. With more, the others are asked for in the next one."""


class Budgets:
    def __init__(self, world: World, limiters: Sequence[Limiter]) -> None:
        self._world = world
        self._limiters = tuple(limiters)
        self._process: UUID = world.new_id()
        self.failures = 0
        """How often the shared buckets could not be reached since they last could."""

    async def keep(self) -> None:
        """Share for ever."""
        while True:
            await self.share()
            await asyncio.sleep(EVERY_SECONDS)

    async def share(self) -> None:
        """Report and refill once. Never raises."""
        asked: list[tuple[Limiter, list[tuple[Hashable, Ask]]]] = []
        try:
            now = self._world.now().timestamp()
            asked += [(limiter, limiter.asks(now, ASKS_MAX)) for limiter in self._limiters]
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                answer = await request_budgets.take(
                    self._world, self._process, [ask for _, asks in asked for _, ask in asks]
                )
        except Exception:  # noqa: BLE001 - whatever it is, this process lives on its share until the next try
            self.failures += 1
            for limiter, asks in asked:
                limiter.unanswered(asks)
            return
        self.failures = 0
        given = {found.bucket: found for found in answer.given}
        for limiter, asks in asked:
            limiter.answer(now, answer.processes, _of(asks, given))


def _of(asks: Sequence[tuple[Hashable, Ask]], given: dict[UUID, Given]) -> dict[Hashable, Given]:
    return {key: given[ask.bucket] for key, ask in asks if ask.bucket in given}
