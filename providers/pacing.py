"""Keeps a provider's rate limits over all replicas together, by the rule of `call_budget`.

A call draws turns of every bucket that names its verb, for one moment, and waits for it. It waits only as long as it is
allowed to; a call whose turn would come later raises LocallyThrottled, and the provider is not asked. More urgent verbs
wait longer and may use more of what is saved up, so that a terminate finds a turn while offers are refreshed.

A call draws all of its buckets together. One that has to wait for its scarcest bucket does so only when that turn is
near: a launch that waits for half a minute must not keep the others from everybody else meanwhile. It then waits in
their lines like any other call, and takes no turn of the scarce one before it has its place there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from aiolimiter import AsyncLimiter

from control_plane.domain.call_budget import Bucket, Pace, leaves_idle, pace_of, start_of
from control_plane.domain.ids import AccountName
from providers.base import CountedBy, RateLimit, Throttled, ToldLimit, Unavailable, Verb
from providers.error_law import place_of

CLOSED_SECONDS_MAX = 3_600.0
"""No provider closes a limit for longer, whatever its answer says."""
URGENCY: Mapping[Verb, float] = {
    Verb.TERMINATE: 1.0,
    Verb.LAUNCH: 0.8,
    Verb.PREPARE: 0.8,
    Verb.POWER: 0.8,
    Verb.FIREWALL: 0.8,
    Verb.INVENTORY: 0.6,
    Verb.CHILDREN: 0.4,
    Verb.CONSOLE: 0.4,
    Verb.OFFERS: 0.4,
}
"""The share of a burst that the calls of a verb may use."""


AnyBucket = TypeVar("AnyBucket", bound=Bucket)


class LocallyThrottled(Throttled):
    """Our own pacing refused the call; the provider was not called."""


class NotCalled(Unavailable):
    """The breaker is open, or our budget cannot be read; the provider was not called."""


NEAR_SECONDS = 2.0
"""How long before its moment in the scarcest bucket a call draws the others, which stay unused for so long."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The turns of one bucket that a call takes."""

    holder: AccountName
    """The account whose bucket it is; for what is counted by source address, the first account of the provider."""
    limit: RateLimit
    pace: Pace
    turns: int = 1
    """How many turns the call takes, from the same moment on."""


class Budget(Protocol):
    """What all replicas together may ask of accounts."""

    async def draw(
        self,
        draws: Sequence[Draw],
        *,
        urgency: float,
        wait_seconds_max: float,
        idle_seconds_max: float = NEAR_SECONDS,
    ) -> float | None:
        """Take the turns of each bucket, all for one moment. The first bucket is the scarcest.

        Returns the seconds until then. Returns None, and takes nothing, when that would exceed `wait_seconds_max`, or
        when another bucket than the first would stay unused for longer than `idle_seconds_max` before it.
        """
        ...

    async def slow(self, draw: Draw, retry_after_seconds: float) -> None:
        """The provider throttled a call: nobody calls until then, and everybody more slowly for a while."""
        ...

    async def learn(self, draw: Draw, told: ToldLimit) -> None:
        """The provider told this limit with its answer."""
        ...


@dataclass
class OneProcessBudget:
    """A Budget for one process, by the given clock. Tests and the demo use it."""

    now: Callable[[], datetime]
    _buckets: dict[tuple[AccountName, str], Bucket] = field(
        default_factory=dict[tuple[AccountName, str], Bucket]
    )

    async def draw(
        self,
        draws: Sequence[Draw],
        *,
        urgency: float,
        wait_seconds_max: float,
        idle_seconds_max: float = NEAR_SECONDS,
    ) -> float | None:
        now, idle_max = self.now(), timedelta(seconds=idle_seconds_max)
        buckets = [(self._bucket(draw), draw.pace, draw.turns) for draw in draws]
        start = start_of(buckets, urgency=urgency, not_before=now)
        wait = (start - now).total_seconds()
        if wait > wait_seconds_max:
            return None
        if leaves_idle(buckets[1:], start, urgency=urgency, not_before=now, longest=idle_max):
            return None
        for draw, (bucket, pace, turns) in zip(draws, buckets, strict=True):
            self._buckets[_key(draw)] = bucket.drawn(pace, start, turns, now)
        return wait

    async def slow(self, draw: Draw, retry_after_seconds: float) -> None:
        slowed = self._bucket(draw).slowed(self.now(), timedelta(seconds=retry_after_seconds))
        self._buckets[_key(draw)] = slowed

    async def learn(self, draw: Draw, told: ToldLimit) -> None:
        self._buckets[_key(draw)] = learned(self._bucket(draw), draw, told, self.now())

    def _bucket(self, draw: Draw) -> Bucket:
        return self._buckets.get(_key(draw), Bucket(self.now()))


def learned(bucket: AnyBucket, draw: Draw, told: ToldLimit, now: datetime) -> AnyBucket:
    """The bucket after the provider told its limit: at most its pace, and no call before it takes some again."""
    limit = draw.limit
    ceiling = (told.calls / told.seconds) / (limit.calls / limit.seconds)
    resets = timedelta(seconds=min(told.resets_seconds, told.seconds, CLOSED_SECONDS_MAX))
    return bucket.told(ceiling, closed_until=now + resets if told.left <= draw.pace.ahead else None)


class Pacer:
    """The pace of one account.

    `in_process` also spaces this process's calls in real time, in case our clock jumps or the process stood still;
    tests with a virtual clock switch it off and bring a budget on their own clock.
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
        self._now = now
        self._sleep = sleep
        self._budget = budget
        self._not_before: dict[Verb, datetime] = {}
        self._draws = [_draw(account, limit, limits) for limit in limits]
        self._told: dict[str, ToldLimit] = {}
        self._gates = {
            draw.limit.bucket: AsyncLimiter(
                draw.pace.burst, draw.pace.burst * draw.pace.interval.total_seconds()
            )
            for draw in self._draws
            if in_process
        }

    async def throttled(self, verb: Verb, retry_after_seconds: float) -> None:
        """The provider throttled a call: the next ones of this verb wait until then, and all are slower for a while.

        Those buckets are slowed that the answer says are empty. Where it does not say, that is the scarcest.
        """
        self._not_before[verb] = self._now() + timedelta(seconds=retry_after_seconds)
        draws = self._draws_of(verb)
        empty = [draw for draw in draws if (told := self._told.get(draw.limit.bucket)) and not told.left]
        if self._budget is not None:
            for draw in empty or draws[:1]:
                with suppress(Exception):  # The pace is a courtesy; the error of the call is what counts.
                    await self._budget.slow(draw, retry_after_seconds)

    async def told(self, limits: Sequence[ToldLimit]) -> None:
        """The provider told these limits with its answer. What is as it was, with calls left, is not stored again."""
        for told in limits:
            draw = next((each for each in self._draws if each.limit.bucket == told.bucket), None)
            before, self._told[told.bucket] = self._told.get(told.bucket), told
            if draw is None or self._budget is None:
                continue
            same = before is not None and (before.calls, before.seconds) == (told.calls, told.seconds)
            if told.left <= draw.pace.ahead or not same:
                with suppress(Exception):  # As above.
                    await self._budget.learn(draw, told)

    async def wait_for_turn(self, verb: Verb, seconds_max: float) -> None:
        """Wait until the limits allow the call, or raise LocallyThrottled."""
        left = seconds_max
        left -= await self._wait_out_throttle(verb, left)
        draws = self._draws_of(verb)
        if self._budget is not None and draws:
            left -= await self._draw_shared(self._budget, URGENCY[verb], draws, left)
        for draw in draws:
            left -= await self._pass_gate(draw, left)

    def _draws_of(self, verb: Verb) -> list[Draw]:
        """What a call of this verb draws, the scarcest first."""
        named = (
            replace(draw, turns=draw.limit.requests.get(verb, 1))
            for draw in self._draws
            if verb in draw.limit.verbs
        )
        return sorted(named, key=lambda draw: draw.pace.interval, reverse=True)

    async def _wait_out_throttle(self, verb: Verb, left: float) -> float:
        wait = (self._not_before.get(verb, self._now()) - self._now()).total_seconds()
        if wait <= 0:
            return 0.0
        if wait > left:
            raise LocallyThrottled(f"{self._account} asked us to wait", retry_after_seconds=wait)
        await self._sleep(wait)
        return wait

    async def _draw_shared(
        self, budget: Budget, urgency: float, draws: Sequence[Draw], seconds_max: float
    ) -> float:
        """Draw, and wait for the moment. Returns the seconds that this took."""
        scarce, *others = draws
        left = max(0.0, seconds_max)
        while True:
            wait = await self._asked(budget.draw(draws, urgency=urgency, wait_seconds_max=left))
            if wait is not None:
                await self._sleep(wait)
                return seconds_max - left + wait
            until = await self._seconds_until(budget, urgency, scarce, left) if others else None
            if until is None:
                raise self._no_turn_in(scarce)
            if until <= NEAR_SECONDS:
                raise self._no_turn_in(others[0])
            await self._sleep(until - NEAR_SECONDS)
            left -= until - NEAR_SECONDS

    async def _seconds_until(
        self, budget: Budget, urgency: float, scarce: Draw, seconds_max: float
    ) -> float | None:
        """How long it is until a bucket has a turn, which is not taken; None when it is longer than `seconds_max`."""
        none = replace(scarce, turns=0)
        return await self._asked(budget.draw([none], urgency=urgency, wait_seconds_max=seconds_max))

    async def _asked(self, drawing: Awaitable[float | None]) -> float | None:
        try:
            return await drawing
        except Exception as error:
            raise NotCalled(f"{self._account}: the budget raised {place_of(error)}") from error

    async def _pass_gate(self, draw: Draw, left: float) -> float:
        gate = self._gates.get(draw.limit.bucket)
        if gate is None:
            return 0.0
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(0.0, left)):
                await gate.acquire(min(draw.turns, draw.pace.burst))
        except TimeoutError:
            raise self._no_turn_in(draw) from None
        return asyncio.get_running_loop().time() - begun

    def _no_turn_in(self, draw: Draw) -> LocallyThrottled:
        limit = draw.limit
        why = f"{self._account}: no turn in bucket {limit.bucket} ({limit.calls} per {limit.seconds:g} s)"
        return LocallyThrottled(why, retry_after_seconds=draw.pace.interval.total_seconds())


def _draw(account: AccountName, limit: RateLimit, limits: Iterable[RateLimit]) -> Draw:
    by_address = limit.counted_by is CountedBy.SOURCE_ADDRESS
    holder = AccountName(account.partition("/")[0]) if by_address else account
    beside = (each for each in limits if each.verbs & limit.verbs and _interval(each) < _interval(limit))
    others = sum(map(_interval, beside))
    pace = pace_of(calls=limit.calls, seconds=limit.seconds, burst=limit.burst, others=others)
    return Draw(holder, limit, pace)


def _interval(limit: RateLimit) -> float:
    return limit.seconds / limit.calls


def _key(draw: Draw) -> tuple[AccountName, str]:
    return draw.holder, draw.limit.bucket
