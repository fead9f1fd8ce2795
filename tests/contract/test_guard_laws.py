"""What the guard promises, over the fake and over the emulated Lambda Cloud behind its real limits."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from control_plane.domain.ids import AccountName, ProviderRef
from providers.base import (
    LaunchOrder,
    ListedOffer,
    NoCapacity,
    OutcomeUnknown,
    RateLimit,
    Throttled,
    Unavailable,
)
from providers.emulators.scenario import FaultKind
from providers.fake import Event, FakeProvider
from providers.guard import PATIENCE, Breaker, Guard, NotCalled, NoTurn, OneProcessBudget, Patience
from tests.contract.clouds import a_key
from tests.contract.clouds.fake import FakeCloud
from tests.contract.clouds.lambda_cloud import LambdaOnPaper
from tests.support.clock import Clock

ACCOUNT = AccountName("under-test")
BRIEF = {verb: Patience(turn=each.turn, answer=0.02) for verb, each in PATIENCE.items()}
"""Timeouts are real time; nobody waits for real in a test."""


class FakeWorld(FakeCloud):
    def __init__(self) -> None:
        super().__init__()
        self.provider.slow = never
        self.guard = Guard(
            self.provider, account=ACCOUNT, now=self.clock.now, sleep=self.clock.sleep, patience=BRIEF
        )


class LambdaWorld(LambdaOnPaper):
    """The guarded adapter; time passes only where the guard sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.line.seconds_between = 0.0
        self.guard = Guard(
            self.provider,
            account=ACCOUNT,
            now=self.clock.now,
            sleep=self.clock.sleep,
            budget=OneProcessBudget(self.clock.now),
            pace_in_process=False,
        )

    def posts(self, path: str) -> int:
        return self.line.requests.count(("POST", f"/api/v1/{path}"))


async def never() -> None:
    await asyncio.Event().wait()


# A write is posted once.


@pytest.mark.parametrize("fault", [FaultKind.CUT_AFTER, FaultKind.ERROR_AFTER, FaultKind.ERROR_BEFORE])
async def test_a_launch_is_posted_exactly_once_whatever_comes_back(fault: FaultKind) -> None:
    world = LambdaWorld()
    world.scenario.add("launch", fault, times=5)
    with pytest.raises(OutcomeUnknown):
        await world.guard.launch(world.order())
    assert world.posts("machine-operations/launch") == 1
    assert world.ever(a_key()) == (0 if fault is FaultKind.ERROR_BEFORE else 1)


async def test_a_terminate_is_posted_exactly_once_whatever_comes_back() -> None:
    world = LambdaWorld()
    ref = await world.guard.launch(world.order())
    world.scenario.add("terminate", FaultKind.ERROR_AFTER, times=5)
    with pytest.raises(OutcomeUnknown):
        await world.guard.terminate(ref)
    assert world.posts("machine-operations/terminate") == 1


@pytest.mark.parametrize("event", [Event.UNAVAILABLE, Event.THROTTLED])
@pytest.mark.parametrize("verb", ["launch", "terminate"])
async def test_a_write_that_changed_nothing_is_still_not_posted_again(verb: str, event: Event) -> None:
    world = FakeWorld()
    ref = await world.guard.launch(world.order())
    world.provider.calls.clear()
    world.provider.weather.script(verb, event)
    with pytest.raises((Unavailable, Throttled)):
        await (world.guard.launch(world.order(2)) if verb == "launch" else world.guard.terminate(ref))
    assert world.provider.calls_of(verb) == 1


async def test_a_definite_no_passes_as_it_is() -> None:
    world = FakeWorld()
    world.refuse_though_listed()
    with pytest.raises(NoCapacity):
        await world.guard.launch(world.order())


# Reads are asked again, so often and no more.


async def test_a_read_is_asked_again_after_no_answer() -> None:
    world = LambdaWorld()
    world.scenario.add("inventory", FaultKind.ERROR_BEFORE)
    world.scenario.add("inventory", FaultKind.PARTIAL_LIST)
    assert await world.guard.inventory() == ()
    assert world.scenario.calls["inventory"] == 3


async def test_a_read_gives_up_after_three_calls_and_says_so() -> None:
    world = FakeWorld()
    world.provider.weather.always("inventory", Event.CUT_LIST)
    with pytest.raises(Unavailable):
        await world.guard.inventory()
    assert world.provider.calls_of("inventory") == 3


async def test_a_short_throttle_is_waited_out_and_a_long_one_is_told() -> None:
    world = FakeWorld()
    world.provider.weather.script("inventory", Event.THROTTLED, seconds=3.0)
    before = world.clock.now()
    await world.guard.inventory()
    assert world.clock.now() - before >= timedelta(seconds=3)

    world.provider.weather.script("inventory", Event.THROTTLED, seconds=60.0)
    with pytest.raises(Throttled):
        await world.guard.inventory()
    with pytest.raises(NoTurn):
        await world.guard.inventory()
    assert world.provider.calls_of("inventory") == 3


# No answer in time.


async def test_a_slow_launch_is_unknown_and_a_slow_read_is_unavailable() -> None:
    world = FakeWorld()
    world.provider.weather.script("launch", Event.SLOW)
    with pytest.raises(OutcomeUnknown):
        await world.guard.launch(world.order())
    assert world.ever(a_key()) == 1

    world.provider.weather.always("inventory", Event.SLOW)
    with pytest.raises(Unavailable):
        await world.guard.inventory()


async def test_a_slow_terminate_is_unknown() -> None:
    world = FakeWorld()
    ref = await world.guard.launch(world.order())
    world.provider.weather.script("terminate", Event.SLOW)
    with pytest.raises(OutcomeUnknown):
        await world.guard.terminate(ref)


async def test_a_cancelled_call_is_cancelled_and_not_an_outcome() -> None:
    world = FakeWorld()
    world.guard = Guard(world.provider, account=ACCOUNT, now=world.clock.now)
    world.provider.weather.script("inventory", Event.SLOW)
    call = asyncio.create_task(world.guard.inventory())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


# The error law.


class Leaky(FakeProvider):
    """An adapter with bugs that carry a secret in their text."""

    async def offers(self) -> tuple[ListedOffer, ...]:
        raise KeyError("Bearer hunter2")

    async def launch(self, order: LaunchOrder) -> ProviderRef:
        raise RuntimeError("Bearer hunter2")

    async def terminate(self, provider_ref: ProviderRef) -> None:
        raise NoCapacity("Bearer hunter2")


async def test_a_bug_in_an_adapter_comes_out_as_the_port_allows_and_without_its_text() -> None:
    world = FakeWorld()
    guard = Guard(Leaky(), account=ACCOUNT, now=world.clock.now, sleep=world.clock.sleep)
    calls: list[tuple[Callable[[], Awaitable[object]], type[Exception], str]] = [
        (guard.offers, Unavailable, "KeyError"),
        (lambda: guard.launch(world.order()), OutcomeUnknown, "RuntimeError"),
        (lambda: guard.terminate(ProviderRef("x")), OutcomeUnknown, "NoCapacity"),
    ]
    for call, expected, word in calls:
        with pytest.raises(expected) as caught:
            await call()
        assert type(caught.value) is expected
        assert word in str(caught.value)
        assert "hunter2" not in repr(caught.value)


# The breaker.


async def test_the_breaker_leaves_a_silent_provider_alone_and_tries_again_with_one_call() -> None:
    world = FakeWorld()
    world.guard.breaker = Breaker(failures_max=3, rest=timedelta(seconds=30))
    world.provider.weather.always("inventory", Event.CUT_LIST)
    with pytest.raises(Unavailable):
        await world.guard.inventory()
    for call in (world.guard.inventory, world.guard.offers, lambda: world.guard.launch(world.order())):
        with pytest.raises(NotCalled):
            await call()
    assert len(world.provider.calls) == 3

    world.advance(30)
    with pytest.raises(NotCalled):
        await world.guard.inventory()  # One try fails; the retries find it open again.
    assert len(world.provider.calls) == 4

    world.advance(30)
    world.provider.weather.clear()
    await world.guard.inventory()
    await world.guard.offers()


async def test_a_terminate_goes_through_an_open_breaker() -> None:
    world = FakeWorld()
    ref = await world.guard.launch(world.order())
    world.guard.breaker = Breaker(failures_max=1)
    world.provider.weather.script("launch", Event.LOST_WITHOUT_EFFECT)
    with pytest.raises(OutcomeUnknown):
        await world.guard.launch(world.order(2))
    with pytest.raises(NotCalled):
        await world.guard.offers()
    await world.guard.terminate(ref)
    assert world.alive(a_key()) == 0


async def test_a_definite_no_does_not_open_the_breaker() -> None:
    world = FakeWorld()
    world.guard.breaker = Breaker(failures_max=2)
    world.provider.weather.always("launch", Event.NO_CAPACITY)
    for _ in range(5):
        with pytest.raises(NoCapacity):
            await world.guard.launch(world.order())
    assert world.guard.breaker.open_since is None


# Pacing.


async def test_a_guarded_adapter_meets_no_throttle_in_a_steady_soak() -> None:
    world = LambdaWorld()
    for number in range(1, 6):
        await world.guard.offers()
        await world.guard.launch(world.order(number))
        await world.guard.inventory()
    for each in await world.guard.inventory():
        await world.guard.terminate(each.provider_ref)
    assert world.app.state.limiter.refused == 0
    assert [world.ever(a_key(number)) for number in range(1, 6)] == [1] * 5


class FullBudget:
    """So many seconds until the next turn."""

    def __init__(self, wait: float) -> None:
        self.wait = wait
        self.asked: list[str] = []

    async def reserve(
        self, account: AccountName, bucket: str, *, calls: int, seconds: float, wait_seconds_max: float
    ) -> float | None:
        self.asked.append(bucket)
        return self.wait if self.wait <= wait_seconds_max else None


@pytest.mark.parametrize(
    ("wait", "served"),
    [
        (0.5, {"offers", "inventory", "launch", "terminate"}),
        (4.0, {"inventory", "launch", "terminate"}),
        (12.0, {"launch", "terminate"}),
        (50.0, {"terminate"}),
        (90.0, set()),
    ],
)
async def test_the_more_urgent_a_verb_the_longer_it_may_wait_for_its_turn(
    wait: float, served: set[str]
) -> None:
    clock = Clock()
    limit = RateLimit("all", 1, 1.0, frozenset({"offers", "inventory", "launch", "terminate"}))
    fake = FakeProvider(now=clock.now)
    fake.capabilities = replace(fake.capabilities, rate_limits=(limit,))
    order = FakeCloud().order()
    ref = await fake.launch(order)
    fake.calls.clear()
    guard = Guard(
        fake,
        account=ACCOUNT,
        now=clock.now,
        sleep=clock.sleep,
        budget=FullBudget(wait),
        pace_in_process=False,
    )
    for call in (guard.offers, guard.inventory, lambda: guard.launch(order), lambda: guard.terminate(ref)):
        with suppress(Throttled):
            await call()
    assert {call.verb for call in fake.calls} == served


async def test_a_budget_that_cannot_be_read_lets_nothing_leave() -> None:
    world = LambdaWorld()

    class Broken(FullBudget):
        async def reserve(self, *args: object, **kwargs: object) -> float | None:
            raise ConnectionError("postgresql://user:hunter2@db")

    guard = Guard(
        world.provider, account=ACCOUNT, now=world.clock.now, budget=Broken(0.0), pace_in_process=False
    )
    with pytest.raises(NotCalled) as caught:
        await guard.launch(world.order())
    assert "hunter2" not in str(caught.value)
    assert world.line.requests == []
    assert guard.breaker.failures == 0


async def test_in_process_pacing_spaces_calls_in_real_time() -> None:
    clock = Clock()
    limit = RateLimit("all", 1, 0.05, frozenset({"offers"}))
    fake = FakeProvider(now=clock.now)
    fake.capabilities = replace(fake.capabilities, rate_limits=(limit,))
    guard = Guard(fake, account=ACCOUNT, now=clock.now)
    begun = asyncio.get_running_loop().time()
    for _ in range(3):
        await guard.offers()
    assert asyncio.get_running_loop().time() - begun >= 0.1


async def test_one_process_budget_never_allows_more_than_the_limit_in_any_window() -> None:
    clock = Clock()
    budget = OneProcessBudget(clock.now)
    turns = []
    for _ in range(20):
        wait = await budget.reserve(ACCOUNT, "b", calls=5, seconds=10.0, wait_seconds_max=1_000.0)
        assert wait is not None
        turns.append(wait)
    for first in turns:
        assert sum(first <= turn < first + 10.0 for turn in turns) <= 5
