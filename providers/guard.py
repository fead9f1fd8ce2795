"""What stands between the reconciler and every provider: patience, pacing, a breaker, the error law.

An adapter says what a provider does; the guard says how we treat it:

  - A call that gets no answer in time is Unavailable (a read) or OutcomeUnknown (a write).
  - Only reads are asked again. A write is posted once, whatever happens: a second post may buy a
    second machine.
  - Nothing but the errors that the port allows for a verb comes out. A bug in an adapter looks like
    a lost answer, because that is what we then know; its text stays inside, it may hold a secret.
  - Calls keep the provider's rate limits, in this process and over all replicas together. A verb
    waits for its turn only so long as its urgency allows: terminate outranks launch outranks
    inventory outranks offers. Who cannot wait is told so without a call.
  - A provider that fails time after time is left alone for a while, and then tried with one call.
    A terminate always goes through: it is how money stops.

Pacing waits happen before the timeout starts; the timeout is real time and covers the call alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Protocol, TypeVar, runtime_checkable

from aiolimiter import AsyncLimiter
from prometheus_client import Counter, Gauge, Histogram
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_base, wait_random_exponential

from control_plane.domain.ids import AccountName, ProviderRef
from providers.base import (
    LaunchOrder,
    ListedOffer,
    MachineNotFound,
    NotYet,
    OutcomeUnknown,
    Provider,
    ProviderError,
    RateLimit,
    Rejected,
    Sighting,
    Throttled,
    Unauthorized,
    Unavailable,
)

READ_ATTEMPTS_MAX = 3
PREPARE_CALLS_MAX = 4
SLACK = 1.05
"""Requests that leave a second apart may arrive closer together; so we space them five percent wider."""

CALLS = Counter("provider_calls", "Calls of a provider, and calls not made.", ("account", "verb", "outcome"))
SECONDS = Histogram("provider_call_seconds", "Time to the answer, without pacing.", ("account", "verb"))
RESTING = Gauge("provider_breaker_open", "1 while an account is left alone.", ("account",))

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a verb may wait for its turn, and then for its answer."""

    turn: float
    answer: float


PATIENCE: Mapping[str, Patience] = {
    "terminate": Patience(turn=60.0, answer=30.0),
    "launch": Patience(turn=15.0, answer=60.0),
    "prepare": Patience(turn=15.0, answer=30.0),
    "inventory": Patience(turn=5.0, answer=30.0),
    "offers": Patience(turn=2.0, answer=20.0),
}
"""Even offers may wait behind one call of a provider that allows one a second."""

_LAWFUL: Mapping[str, tuple[type[ProviderError], ...]] = {
    "offers": (Unauthorized, Throttled, Unavailable),
    "inventory": (Unauthorized, Throttled, Unavailable),
    "prepare": (Rejected, Throttled, Unavailable),
    "launch": (Rejected, Throttled, Unavailable, OutcomeUnknown),
    "terminate": (Unauthorized, Throttled, Unavailable, OutcomeUnknown, NotYet, MachineNotFound),
}
_WRITES = frozenset({"launch", "terminate"})


class NoTurn(Throttled):
    """Our own pacing said no; the provider was not called."""


class NotCalled(Unavailable):
    """The breaker is open or our budget cannot be read; the provider was not called."""


class Budget(Protocol):
    """What all replicas may ask of an account together."""

    async def reserve(
        self, account: AccountName, bucket: str, *, calls: int, seconds: float, wait_seconds_max: float
    ) -> float | None:
        """Take one of the `calls` that the bucket allows in any `seconds`.

        Answers the seconds to wait before the call, or None when that would exceed
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


@runtime_checkable
class NeedsPreparing(Protocol):
    """A provider whose launches need something registered first, such as an SSH key.

    Each `prepare` is one outside call that may be repeated, so that it can be paced on its own;
    `launch` of an unprepared provider would be several calls at once.
    """

    def prepared(self, order: LaunchOrder) -> bool: ...

    async def prepare(self, order: LaunchOrder) -> None: ...


@dataclass
class Breaker:
    """Opens after `failures_max` calls in a row without an answer; after `rest` lets one call try."""

    failures_max: int = 5
    rest: timedelta = timedelta(seconds=30)
    failures: int = 0
    open_since: datetime | None = None
    _trying: bool = False

    def admit(self, now: datetime) -> bool:
        if self.open_since is None:
            return True
        if self._trying or now - self.open_since < self.rest:
            return False
        self._trying = True
        return True

    def answered(self) -> None:
        """Any answer closes it, also a "no"."""
        self.failures, self.open_since, self._trying = 0, None, False

    def failed(self, now: datetime) -> None:
        self.failures += 1
        if self.failures >= self.failures_max and (self.open_since is None or self._trying):
            self.open_since = now
        self._trying = False

    def abandoned(self) -> None:
        """The admitted call was never made or was cancelled: it says nothing about the provider."""
        self._trying = False


class Guard:
    """A Provider that treats another one as the module says.

    `pace_in_process` queues this process's calls in memory on real time before they ask the shared
    budget; tests with a virtual clock switch it off and bring a budget on their own clock.
    """

    def __init__(
        self,
        inner: Provider,
        *,
        account: AccountName,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        budget: Budget | None = None,
        breaker: Breaker | None = None,
        patience: Mapping[str, Patience] = PATIENCE,
        pace_in_process: bool = True,
    ) -> None:
        self.capabilities = inner.capabilities
        self.breaker = breaker or Breaker()
        self._inner = inner
        self._account = account
        self._now = now
        self._sleep = sleep
        self._budget = budget
        self._patience = patience
        self._not_before: dict[str, datetime] = {}
        limits = inner.capabilities.rate_limits
        self._windows = {limit.bucket: _window(limit, limits) for limit in limits}
        self._limiters = {
            limit.bucket: AsyncLimiter(1, self._windows[limit.bucket] / limit.calls)
            for limit in limits
            if pace_in_process
        }

    async def offers(self) -> tuple[ListedOffer, ...]:
        return await self._read("offers", self._inner.offers)

    async def inventory(self) -> tuple[Sighting, ...]:
        return await self._read("inventory", self._inner.inventory)

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        await self._prepare(order)
        return await self._once("launch", lambda: self._inner.launch(order))

    async def terminate(self, provider_ref: ProviderRef) -> None:
        await self._once("terminate", lambda: self._inner.terminate(provider_ref))

    async def close(self) -> None:
        await self._inner.close()

    async def _prepare(self, order: LaunchOrder) -> None:
        inner = self._inner
        if not isinstance(inner, NeedsPreparing):
            return
        for _ in range(PREPARE_CALLS_MAX):
            if inner.prepared(order):
                return
            await self._read("prepare", lambda: inner.prepare(order))

    async def _read(self, verb: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        retrying = AsyncRetrying(
            stop=stop_after_attempt(READ_ATTEMPTS_MAX),
            retry=retry_if_exception(_worth_asking_again),
            wait=_BetweenReads(),
            sleep=self._sleep,
            reraise=True,
        )
        return await retrying(self._once, verb, ask)

    async def _once(self, verb: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """One call or none. Everything that leaves here is lawful for the verb."""
        if not self.breaker.admit(self._now()) and verb != "terminate":
            CALLS.labels(self._account, verb, NotCalled.__name__).inc()
            raise NotCalled(
                f"{self._account} is left alone after {self.breaker.failures} calls without answer"
            )
        try:
            await self._turn(verb)
            answer = await self._ask(verb, ask)
        except ProviderError as error:
            self._note(verb, error)
            raise
        except BaseException:
            self.breaker.abandoned()
            raise
        self._note(verb, None)
        return answer

    async def _ask(self, verb: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        begun = self._now()
        seconds = self._patience[verb].answer
        try:
            async with asyncio.timeout(seconds):
                return await ask()
        except ProviderError as error:
            if isinstance(error, _LAWFUL[verb]):
                raise
            raise _silence(verb, f"an unlawful {_where(error)}") from None
        except TimeoutError:
            raise _silence(verb, f"no answer in {seconds:g} s") from None
        except Exception as error:  # noqa: BLE001 - the error law: whatever an adapter does, callers see the port's errors
            raise _silence(verb, _where(error)) from None
        finally:
            SECONDS.labels(self._account, verb).observe((self._now() - begun).total_seconds())

    def _note(self, verb: str, error: ProviderError | None) -> None:
        """Tell the metrics, the breaker and the next caller what came of a call."""
        outcome = "ok" if error is None else type(error).__name__
        CALLS.labels(self._account, verb, outcome).inc()
        if isinstance(error, (NotCalled, NoTurn)):
            self.breaker.abandoned()
            return
        if isinstance(error, (Unavailable, OutcomeUnknown)):
            self.breaker.failed(self._now())
        else:
            self.breaker.answered()
        if isinstance(error, Throttled):
            self._not_before[verb] = self._now() + timedelta(seconds=error.retry_after_seconds)
        RESTING.labels(self._account).set(self.breaker.open_since is not None)

    async def _turn(self, verb: str) -> None:
        """Wait until the limits allow the call, or raise NoTurn.

        The scarcest bucket first: it says no most often, and then nothing was taken from the others.
        """
        left = self._patience[verb].turn
        left -= await self._wait_out_throttle(verb, left)
        limits = [limit for limit in self.capabilities.rate_limits if verb in limit.verbs]
        for limit in sorted(limits, key=_interval, reverse=True):
            left -= await self._draw_here(limit, left)
            left -= await self._draw_shared(limit, left)

    async def _wait_out_throttle(self, verb: str, left: float) -> float:
        wait = (self._not_before.get(verb, self._now()) - self._now()).total_seconds()
        if wait <= 0:
            return 0.0
        if wait > left:
            raise NoTurn(f"{self._account} asked us to wait", retry_after_seconds=wait)
        await self._sleep(wait)
        return wait

    async def _draw_here(self, limit: RateLimit, left: float) -> float:
        limiter = self._limiters.get(limit.bucket)
        if limiter is None:
            return 0.0
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(0.0, left)):
                await limiter.acquire()
        except TimeoutError:
            raise self._no_turn(limit) from None
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
            raise NotCalled(f"{self._account}: the budget gave {_where(error)}") from error
        if wait is None:
            raise self._no_turn(limit)
        if wait > 0:
            await self._sleep(wait)
        return wait

    def _no_turn(self, limit: RateLimit) -> NoTurn:
        why = f"{self._account}: no turn in bucket {limit.bucket} ({limit.calls} per {limit.seconds:g} s)"
        return NoTurn(why, retry_after_seconds=limit.seconds / limit.calls)


def _interval(limit: RateLimit) -> float:
    return limit.seconds / limit.calls


def _window(limit: RateLimit, limits: Iterable[RateLimit]) -> float:
    """The seconds in which we make at most `limit.calls` calls: a little more than the provider's.

    A call draws from its scarcest bucket first and may then wait behind one call of each faster
    bucket. Without that in the reckoning, a late launch and the next punctual one come too close.
    """
    faster = (each for each in limits if each.verbs & limit.verbs and _interval(each) < _interval(limit))
    return SLACK * (limit.seconds + sum(map(_interval, faster)))


class _BetweenReads(wait_base):
    """Jitter, so that replicas do not come back together. What a throttle asked for is waited out by the turn."""

    _backoff = wait_random_exponential(multiplier=0.5, max=4.0)

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        return 0.0 if isinstance(error, Throttled) else self._backoff(retry_state)


def _worth_asking_again(error: BaseException) -> bool:
    if isinstance(error, (NotCalled, NoTurn)):
        return False
    return isinstance(error, (Unavailable, Throttled))


def _silence(verb: str, why: str) -> ProviderError:
    """What we know when no lawful answer came."""
    return OutcomeUnknown(f"{verb}: {why}") if verb in _WRITES else Unavailable(f"{verb}: {why}")


def _where(error: Exception) -> str:
    """The error's type and place, never its text: a URL or a header in it may hold a secret."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (
        f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "unknown place"
    )
    return f"{type(error).__name__} at {place}"
