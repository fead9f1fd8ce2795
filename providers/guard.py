"""What stands between the reconciler and every provider: timeouts, retries of reads, pacing, a breaker, the error law.

An adapter says what a provider does; the guard decides how we treat it:

  - A call that gets no answer in time is Unavailable (a read) or OutcomeUnknown (a write).
  - Only reads are retried. A write is sent once, whatever happens: a second one may buy a second machine.
  - Only the errors that the law allows for a verb come out. A bug in an adapter looks like a lost
    answer, because that is what we then know; its text stays inside, since it may hold a secret.
  - Calls keep the provider's rate limits, in this process and over all replicas (`pacing.py`). A verb
    waits for its turn only as long as its urgency allows: terminate outranks launch and power, these outrank
    inventory, inventory outranks consoles and offers. Each page of a listing takes a turn of its own.
  - A provider that fails time after time is left alone for a while and then tried with one call
    (`breaker.py`). A terminate always goes through, since it stops a machine from costing money.

A call waits for its turn before its timeout starts. The timeout is real time and covers the call alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from prometheus_client import Counter, Gauge, Histogram
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_base, wait_random_exponential

from control_plane.domain.ids import AccountName, LaunchKey, ProviderRef
from providers.base import (
    Child,
    Ingress,
    LateRefusal,
    LaunchOrder,
    Listed,
    OutcomeUnknown,
    PlannedWork,
    PowerAction,
    Provider,
    ProviderError,
    Sighting,
    Throttled,
    Unavailable,
    Verb,
)
from providers.breaker import Breaker
from providers.error_law import ERRORS_OF, Meaning, error_for, place_of
from providers.listings import whole_listing
from providers.optional import (
    ConsoleTicket,
    HasChildren,
    HasConsole,
    HasFirewall,
    HasPower,
    ListsInPages,
    ListsSomeRegions,
    NeedsPreparing,
    RefusesLater,
    TellsLimits,
    TellsPlannedWork,
)
from providers.pacing import Budget, LocallyThrottled, NotCalled, Pacer
from tracing.attributes import Attribute
from tracing.tracer import NO_TRACER, Kind, Span, Tracer

READ_ATTEMPTS_MAX = 3
PREPARE_CALLS_MAX = 8
"""Nebius takes eight calls once: project, subnet, security group, and each of its rules."""
ANSWER_SECONDS_MAX = 90.0
"""The longest answer that `Capabilities.answer_seconds` may ask us to wait for."""

CALLS = Counter(
    "splitplane_provider_calls", "Calls of a provider, and calls not made.", ("account", "verb", "outcome")
)
SECONDS = Histogram(
    "splitplane_provider_call_seconds", "Time to the answer, without waiting for a turn.", ("account", "verb")
)
BREAKER_OPEN = Gauge(
    "splitplane_provider_breaker_open", "1 while the breaker of an account is open.", ("account",)
)

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Timeout:
    """Seconds that a verb may wait for its turn, and then for its answer."""

    turn: float
    answer: float


TIMEOUTS: Mapping[Verb, Timeout] = {
    Verb.TERMINATE: Timeout(turn=60.0, answer=30.0),
    Verb.LAUNCH: Timeout(turn=15.0, answer=60.0),
    Verb.PREPARE: Timeout(turn=15.0, answer=30.0),
    Verb.POWER: Timeout(turn=15.0, answer=30.0),
    Verb.FIREWALL: Timeout(turn=15.0, answer=30.0),
    Verb.INVENTORY: Timeout(turn=5.0, answer=30.0),
    Verb.CONSOLE: Timeout(turn=10.0, answer=20.0),
    Verb.CHILDREN: Timeout(turn=5.0, answer=30.0),
    Verb.OFFERS: Timeout(turn=2.0, answer=20.0),
}
"""Even offers may wait behind one call of a provider that allows one call per second."""


class Guard:
    """A Provider that calls another one under the rules above.

    `pace_in_process` is for `pacing.Pacer`.
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
        timeouts: Mapping[Verb, Timeout] = TIMEOUTS,
        pace_in_process: bool = True,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.capabilities = inner.capabilities
        self.breaker = breaker or Breaker()
        self._inner = inner
        self._account = account
        self._now = now
        self._sleep = sleep
        self._timeouts = timeouts
        self._tracer = tracer
        self._pacer = Pacer(
            account,
            inner.capabilities.rate_limits,
            now=now,
            sleep=sleep,
            budget=budget,
            in_process=pace_in_process,
        )

    async def offers(self) -> tuple[Listed, ...]:
        return await self._read(Verb.OFFERS, self._inner.offers)

    async def inventory(self) -> tuple[Sighting, ...]:
        inner = self._inner
        if not isinstance(inner, ListsInPages):
            return await self._read(Verb.INVENTORY, inner.inventory)
        return await whole_listing(
            Verb.INVENTORY,
            lambda cursor: self._read(Verb.INVENTORY, lambda: inner.inventory_page(cursor)),
        )

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        if order.spot and not self.capabilities.sells_spot:
            raise error_for(Verb.LAUNCH, Meaning.REFUSED, "no spot capacity is ordered from this provider")
        await self._prepare(order)
        return await self._once(Verb.LAUNCH, lambda: self._inner.launch(order), region=order.native_region)

    async def terminate(self, provider_ref: ProviderRef) -> None:
        await self._once(Verb.TERMINATE, lambda: self._inner.terminate(provider_ref))

    async def power(self, action: PowerAction, provider_ref: ProviderRef) -> None:
        inner = self._inner
        if action not in self.capabilities.power or not isinstance(inner, HasPower):
            raise error_for(Verb.POWER, Meaning.REFUSED, f"this provider cannot {action} machines")
        await self._once(Verb.POWER, lambda: inner.power(action, provider_ref))

    async def apply_ingress(
        self, provider_ref: ProviderRef, launch_key: LaunchKey, wanted: frozenset[Ingress]
    ) -> bool:
        inner = self._inner
        if not isinstance(inner, HasFirewall):
            raise error_for(Verb.FIREWALL, Meaning.REFUSED, "this provider has no firewall of a machine")
        return await self._read(Verb.FIREWALL, lambda: inner.apply_ingress(provider_ref, launch_key, wanted))

    async def console(self, provider_ref: ProviderRef, ticket: str | None) -> str | ConsoleTicket:
        inner = self._inner
        if not self.capabilities.console or not isinstance(inner, HasConsole):
            raise error_for(Verb.CONSOLE, Meaning.REFUSED, "this provider shows no consoles")
        return await self._read(Verb.CONSOLE, lambda: inner.console(provider_ref, ticket))

    async def refused_later(self) -> tuple[LateRefusal, ...]:
        """None where the provider refuses launches at once or not at all."""
        inner = self._inner
        return (
            await self._read(Verb.INVENTORY, inner.refused_later) if isinstance(inner, RefusesLater) else ()
        )

    async def planned_work(self) -> tuple[PlannedWork, ...]:
        """Empty where the provider announces nothing to programs."""
        inner = self._inner
        return (
            await self._read(Verb.INVENTORY, inner.planned_work)
            if isinstance(inner, TellsPlannedWork)
            else ()
        )

    def lists(self, native_region: str) -> bool:
        """True where the provider looks for machines in all of its regions."""
        inner = self._inner
        return inner.lists(native_region) if isinstance(inner, ListsSomeRegions) else True

    async def children(self) -> tuple[Child, ...]:
        """Each once, also where pages of the provider's list overlap. None where launches make nothing but machines."""
        inner = self._inner
        if not isinstance(inner, HasChildren):
            return ()
        listed = await self._read(Verb.CHILDREN, inner.children)
        return tuple({child.key: child for child in listed}.values())

    async def delete_child(self, child: Child) -> None:
        inner = self._inner
        if not isinstance(inner, HasChildren):
            raise error_for(Verb.CHILDREN, Meaning.NOT_FOUND, "this provider has no children")
        await self._read(Verb.CHILDREN, lambda: inner.delete_child(child))

    async def close(self) -> None:
        await self._inner.close()

    def answer_seconds(self, verb: Verb) -> float:
        """How long an answer to this verb is waited for."""
        asked = self.capabilities.answer_seconds.get(verb, self._timeouts[verb].answer)
        return min(asked, ANSWER_SECONDS_MAX)

    async def _prepare(self, order: LaunchOrder) -> None:
        inner = self._inner
        if not isinstance(inner, NeedsPreparing):
            return
        for _ in range(PREPARE_CALLS_MAX):
            if inner.prepared(order):
                return
            await self._read(Verb.PREPARE, lambda: inner.prepare(order))

    async def _read(self, verb: Verb, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """A call that may be made again when it got no answer."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(READ_ATTEMPTS_MAX),
            retry=retry_if_exception(_worth_a_retry),
            wait=_BetweenReads(),
            sleep=self._sleep,
            reraise=True,
        )
        return await retrying(self._once, verb, call)

    async def _once(
        self, verb: Verb, call: Callable[[], Awaitable[Answer]], *, region: str | None = None
    ) -> Answer:
        """Make one call or none. Every ProviderError that leaves here is one that the law allows for the verb."""
        with self._tracer.span(f"provider {verb}", Kind.CLIENT) as span:
            span.set(Attribute.VERB, verb)
            span.set(Attribute.ACCOUNT, self._account)
            span.set(Attribute.REGION, region)
            return await self._in_turn(verb, call, span)

    async def _in_turn(self, verb: Verb, call: Callable[[], Awaitable[Answer]], span: Span) -> Answer:
        if not self.breaker.admit(self._now()) and verb is not Verb.TERMINATE:
            CALLS.labels(self._account, verb, NotCalled.__name__).inc()
            span.set(Attribute.OUTCOME, NotCalled.__name__)
            raise NotCalled(
                f"{self._account} is left alone after {self.breaker.failures} calls without an answer"
            )
        try:
            begun = self._now()
            await self._pacer.wait_for_turn(verb, self._timeouts[verb].turn)
            span.set(Attribute.WAITED, (self._now() - begun).total_seconds())
            answer = await self._answer(verb, call)
        except ProviderError as error:
            self._note(verb, error)
            span.set(Attribute.OUTCOME, type(error).__name__)
            if isinstance(error, Throttled) and not isinstance(error, LocallyThrottled):
                await self._learn()
                await self._pacer.throttled(verb, error.retry_after_seconds)
            raise
        except BaseException:
            self.breaker.abandoned()
            raise
        self._note(verb, None)
        span.set(Attribute.OUTCOME, "ok")
        await self._learn()
        return answer

    async def _learn(self) -> None:
        """Hand on what the provider's last answer told about its limits."""
        if isinstance(self._inner, TellsLimits):
            await self._pacer.told(self._inner.told_limits())

    async def _answer(self, verb: Verb, call: Callable[[], Awaitable[Answer]]) -> Answer:
        begun = self._now()
        seconds = self.answer_seconds(verb)
        try:
            async with asyncio.timeout(seconds):
                return await call()
        except ProviderError as error:
            if isinstance(error, ERRORS_OF[verb]):
                raise
            raise error_for(verb, Meaning.UNCLEAR, f"an unlawful {place_of(error)}") from None
        except TimeoutError:
            raise error_for(verb, Meaning.UNCLEAR, f"no answer in {seconds:g} s") from None
        except Exception as error:  # noqa: BLE001 - the error law: whatever an adapter does, callers see the port's errors
            raise error_for(verb, Meaning.UNCLEAR, place_of(error)) from None
        finally:
            SECONDS.labels(self._account, verb).observe((self._now() - begun).total_seconds())

    def _note(self, verb: Verb, error: ProviderError | None) -> None:
        """Record a call's outcome in the metrics and the breaker."""
        outcome = "ok" if error is None else type(error).__name__
        CALLS.labels(self._account, verb, outcome).inc()
        if isinstance(error, (NotCalled, LocallyThrottled)) or (error is not None and verb is Verb.CONSOLE):
            # Customers ask for consoles as often as they like: nobody's failures may keep launches from the account.
            self.breaker.abandoned()
            return
        if isinstance(error, (Unavailable, OutcomeUnknown)):
            self.breaker.failed(self._now())
        else:
            self.breaker.answered()
        BREAKER_OPEN.labels(self._account).set(self.breaker.open_since is not None)


class _BetweenReads(wait_base):
    """A random pause, so that replicas do not retry together. A throttle is waited out by the next turn instead."""

    _backoff = wait_random_exponential(multiplier=0.5, max=4.0)

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        return 0.0 if isinstance(error, Throttled) else self._backoff(retry_state)


def _worth_a_retry(error: BaseException) -> bool:
    if isinstance(error, (NotCalled, LocallyThrottled)):
        return False
    return isinstance(error, (Unavailable, Throttled))
