"""Keeps a provider's rate limits: in this process, and over all replicas together.

A call draws from every bucket that names its verb and waits for its turn in each. It waits only as
long as it is allowed to; a call whose turn would come later raises LocallyThrottled, and the
provider is not asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from aiolimiter import AsyncLimiter

from control_plane.domain.ids import AccountName
from providers.base import RateLimit, Throttled, Unavailable, Verb
from providers.error_law import place_of

SLACK = 1.05
"""Requests that leave a second apart may arrive closer together, so they are spaced five percent wider."""


class LocallyThrottled(Throttled):
    """Our own pacing refused the call; the provider was not called."""


class NotCalled(Unavailable):
    """The breaker is open, or our budget cannot be read; the provider was not called."""


class Budget(Protocol):
    """What all replicas together may ask of an account."""

    async def reserve(
        self, account: AccountName, bucket: str, *, calls: int, seconds: float, wait_seconds_max: float
    ) -> float | None:
        """Take one of the `calls` that the bucket allows in any `seconds`.

        Returns the seconds to wait before the call, or None when that would exceed
        `wait_seconds_max`; then nothing was taken.
        """
        ...


@dataclass
class OneProcessBudget:
    """A Budget for one process: evenly spaced turns, by the given clock. Tests and the demo use it."""

    now: Callable[[], datetime]
    _free_from: dict[tuple[AccountName, str], datetime] = field(
        default_factory=dict[tuple[AccountName, str], datetime]
    )

    async def reserve(
        self, account: AccountName, bucket: str, *, calls: int, seconds: float, wait_seconds_max: float
    ) -> float | None:
        now = self.now()
        turn = max(now, self._free_from.get((account, bucket), now))
        wait = (turn - now).total_seconds()
        if wait > wait_seconds_max:
            return None
        self._free_from[account, bucket] = turn + timedelta(seconds=seconds / calls)
        return wait


class Pacer:
    """The pace of one account.

    `in_process` also queues this process's calls in memory, on real time, before they draw from the
    shared budget; tests with a virtual clock switch it off and bring a budget on their own clock.
    """

    def __init__(
        self,
        account: AccountName,
        limits: tuple[RateLimit, ...],
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        budget: Budget | None,
        in_process: bool,
    ) -> None:
        self._account = account
        self._limits = limits
        self._now = now
        self._sleep = sleep
        self._budget = budget
        self._not_before: dict[Verb, datetime] = {}
        self._windows = {limit.bucket: _window(limit, limits) for limit in limits}
        self._limiters = {
            limit.bucket: AsyncLimiter(1, self._windows[limit.bucket] / limit.calls)
            for limit in limits
            if in_process
        }

    def throttled(self, verb: Verb, retry_after_seconds: float) -> None:
        """The provider throttled a call: the next ones of this verb wait until then."""
        self._not_before[verb] = self._now() + timedelta(seconds=retry_after_seconds)

    async def wait_for_turn(self, verb: Verb, seconds_max: float) -> None:
        """Wait until the limits allow the call, or raise LocallyThrottled.

        The scarcest bucket comes first: it refuses most often, and then nothing was taken from the others.
        """
        left = seconds_max
        left -= await self._wait_out_throttle(verb, left)
        limits = [limit for limit in self._limits if verb in limit.verbs]
        for limit in sorted(limits, key=_interval, reverse=True):
            left -= await self._draw_in_process(limit, left)
            left -= await self._draw_shared(limit, left)

    async def _wait_out_throttle(self, verb: Verb, left: float) -> float:
        wait = (self._not_before.get(verb, self._now()) - self._now()).total_seconds()
        if wait <= 0:
            return 0.0
        if wait > left:
            raise LocallyThrottled(f"{self._account} asked us to wait", retry_after_seconds=wait)
        await self._sleep(wait)
        return wait

    async def _draw_in_process(self, limit: RateLimit, left: float) -> float:
        limiter = self._limiters.get(limit.bucket)
        if limiter is None:
            return 0.0
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(0.0, left)):
                await limiter.acquire()
        except TimeoutError:
            raise self._no_turn_in(limit) from None
        return asyncio.get_running_loop().time() - begun

    async def _draw_shared(self, limit: RateLimit, left: float) -> float:
        if self._budget is None:
            return 0.0
        try:
            wait = await self._budget.reserve(
                self._account,
                limit.bucket,
                calls=limit.calls,
                seconds=self._windows[limit.bucket],
                wait_seconds_max=max(0.0, left),
            )
        except Exception as error:
            raise NotCalled(f"{self._account}: the budget raised {place_of(error)}") from error
        if wait is None:
            raise self._no_turn_in(limit)
        if wait > 0:
            await self._sleep(wait)
        return wait

    def _no_turn_in(self, limit: RateLimit) -> LocallyThrottled:
        why = f"{self._account}: no turn in bucket {limit.bucket} ({limit.calls} per {limit.seconds:g} s)"
        return LocallyThrottled(why, retry_after_seconds=_interval(limit))


def _interval(limit: RateLimit) -> float:
    return limit.seconds / limit.calls


def _window(limit: RateLimit, limits: Iterable[RateLimit]) -> float:
    """The seconds in which we make at most `limit.calls` calls: a little more than the provider's.

    A call draws from its scarcest bucket first and may then wait behind one call of each faster
    bucket. Without that margin, a call that waited and a next one that did not would come too close.
    """
    faster = (each for each in limits if each.verbs & limit.verbs and _interval(each) < _interval(limit))
    return SLACK * (limit.seconds + sum(map(_interval, faster)))
