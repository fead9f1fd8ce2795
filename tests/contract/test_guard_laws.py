"""What the guard promises, over the fake and over the emulated Lambda Cloud behind its real limits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from control_plane.domain.call_budget import pace_of
from control_plane.domain.ids import AccountName, ProviderRef
from providers.base import (
    LaunchOrder,
    ListedOffer,
    NoCapacity,
    OutcomeUnknown,
    Page,
    RateLimit,
    Sighting,
    Throttled,
    ToldLimit,
    Unavailable,
    Verb,
)
from providers.breaker import Breaker
from providers.emulators.scenario import FaultKind
from providers.fake import Call, FakeProvider, Fault
from providers.guard import ANSWER_SECONDS_MAX, TIMEOUTS, Guard, Timeout
from providers.pacing import NEAR_SECONDS, Draw, LocallyThrottled, NotCalled, OneProcessBudget, Pacer
from tests.contract.clouds import a_key
from tests.contract.clouds.fake import FakeCloud
from tests.contract.clouds.lambda_cloud import EmulatedLambdaCloud
from tests.support.clock import Clock

ACCOUNT = AccountName("under-test")
BRIEF = {verb: Timeout(turn=each.turn, answer=0.02) for verb, each in TIMEOUTS.items()}
"""Timeouts are real time; nobody waits for real in a test."""


class FakeWorld(FakeCloud):
    def __init__(self) -> None:
        super().__init__()
        self.provider.slow = never
        self.guard = Guard(
            self.provider, account=ACCOUNT, now=self.clock.now, sleep=self.clock.sleep, timeouts=BRIEF
        )


class LambdaWorld(EmulatedLambdaCloud):
    """The guarded adapter; time passes only where the guard sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.network.seconds_between = 0.0
        self.guard = Guard(
            self.provider,
            account=ACCOUNT,
            now=self.clock.now,
            sleep=self.clock.sleep,
            budget=OneProcessBudget(self.clock.now),
            pace_in_process=False,
        )

    def posts(self, path: str) -> int:
        return self.network.requests.count(("POST", f"/api/v1/{path}"))


async def never() -> None:
    await asyncio.Event().wait()


# A write is posted once.


@pytest.mark.parametrize("fault", [FaultKind.CUT_AFTER, FaultKind.ERROR_AFTER, FaultKind.ERROR_BEFORE])
async def test_a_launch_is_posted_exactly_once_whatever_comes_back(fault: FaultKind) -> None:
    world = LambdaWorld()
    world.scenario.add("launch", fault, times=5)
    with pytest.raises(OutcomeUnknown):
        await world.guard.launch(world.order())
    assert world.posts("instance-operations/launch") == 1
    assert world.ever(a_key()) == (0 if fault is FaultKind.ERROR_BEFORE else 1)


async def test_a_terminate_is_posted_exactly_once_whatever_comes_back() -> None:
    world = LambdaWorld()
    ref = await world.guard.launch(world.order())
    world.scenario.add("terminate", FaultKind.ERROR_AFTER, times=5)
    with pytest.raises(OutcomeUnknown):
        await world.guard.terminate(ref)
    assert world.posts("instance-operations/terminate") == 1


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.THROTTLED])
@pytest.mark.parametrize("verb", ["launch", "terminate"])
async def test_a_write_that_changed_nothing_is_still_not_posted_again(verb: str, fault: Fault) -> None:
    world = FakeWorld()
    ref = await world.guard.launch(world.order())
    world.provider.calls.clear()
    world.provider.faults.script(verb, fault)
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
    world.provider.faults.always("inventory", Fault.LISTING_FAILS)
    with pytest.raises(Unavailable):
        await world.guard.inventory()
    assert world.provider.calls_of("inventory") == 3


async def test_a_short_throttle_is_waited_out_and_a_long_one_is_reported() -> None:
    world = FakeWorld()
    world.provider.faults.script("inventory", Fault.THROTTLED, seconds=3.0)
    before = world.clock.now()
    await world.guard.inventory()
    assert world.clock.now() - before >= timedelta(seconds=3)

    world.provider.faults.script("inventory", Fault.THROTTLED, seconds=60.0)
    with pytest.raises(Throttled):
        await world.guard.inventory()
    with pytest.raises(LocallyThrottled):
        await world.guard.inventory()
    assert world.provider.calls_of("inventory") == 3


class Paged(FakeProvider):
    """Five machines on five pages; the third page fails as often as the test demands."""

    failures = 0

    async def inventory_page(self, cursor: str | None) -> Page[Sighting]:
        page = int(cursor or 0)
        self.calls.append(Call(f"page {page}", self.now()))
        if page == 2 and self.failures:
            self.failures -= 1
            raise Unavailable("this page failed")
        return Page((await self.inventory())[page : page + 1], str(page + 1) if page < 4 else None)


async def a_paged_world() -> tuple[Paged, Guard, Clock]:
    clock = Clock()
    paged = Paged(now=clock.now)
    for number in range(1, 6):
        await paged.launch(FakeCloud().order(number))
    limit = RateLimit("inventory", 1, 2.0, frozenset({Verb.INVENTORY}))
    paged.capabilities = replace(paged.capabilities, rate_limits=(limit,))
    budget = OneProcessBudget(clock.now)
    guard = Guard(
        paged, account=ACCOUNT, now=clock.now, sleep=clock.sleep, budget=budget, pace_in_process=False
    )
    return paged, guard, clock


def pages_asked(paged: Paged) -> list[str]:
    return [call.verb for call in paged.calls if call.verb.startswith("page")]


async def test_each_page_of_a_listing_takes_a_turn_of_its_own() -> None:
    paged, guard, clock = await a_paged_world()
    begun = clock.now()
    assert len(await guard.inventory()) == 5
    assert clock.now() - begun >= timedelta(seconds=8)
    asked = [call.at for call in paged.calls if call.verb.startswith("page")]
    assert all(after - before >= timedelta(seconds=2) for before, after in pairwise(asked))


async def test_a_page_that_fails_is_read_again_and_the_listing_goes_on_from_there() -> None:
    paged, guard, _ = await a_paged_world()
    paged.failures = 2
    assert len(await guard.inventory()) == 5
    assert pages_asked(paged) == ["page 0", "page 1", *["page 2"] * 3, "page 3", "page 4"]


async def test_a_page_that_keeps_failing_fails_the_whole_listing() -> None:
    paged, guard, _ = await a_paged_world()
    paged.failures = 3
    with pytest.raises(Unavailable):
        await guard.inventory()
    assert pages_asked(paged) == ["page 0", "page 1", *["page 2"] * 3]


# No answer in time.


def declaring(provider: FakeProvider, seconds: float) -> Guard:
    """A guard over a provider that says how long its launches take to answer."""
    provider.capabilities = replace(provider.capabilities, answer_seconds={Verb.LAUNCH: seconds})
    return Guard(provider, account=ACCOUNT, now=provider.now)


async def test_a_provider_may_declare_how_long_its_answers_take_within_a_bound() -> None:
    world = FakeWorld()
    assert declaring(world.provider, 75.0).answer_seconds(Verb.LAUNCH) == 75.0
    assert declaring(world.provider, 75.0).answer_seconds(Verb.OFFERS) == TIMEOUTS[Verb.OFFERS].answer
    assert declaring(world.provider, 3_600.0).answer_seconds(Verb.LAUNCH) == ANSWER_SECONDS_MAX
    world.provider.faults.script("launch", Fault.SLOW)
    with pytest.raises(OutcomeUnknown, match=r"no answer in 0\.01 s"):
        await declaring(world.provider, 0.01).launch(world.order())


async def test_a_slow_launch_is_unknown_and_a_slow_read_is_unavailable() -> None:
    world = FakeWorld()
    world.provider.faults.script("launch", Fault.SLOW)
    with pytest.raises(OutcomeUnknown):
        await world.guard.launch(world.order())
    assert world.ever(a_key()) == 1

    world.provider.faults.always("inventory", Fault.SLOW)
    with pytest.raises(Unavailable):
        await world.guard.inventory()


async def test_a_slow_terminate_is_unknown() -> None:
    world = FakeWorld()
    ref = await world.guard.launch(world.order())
    world.provider.faults.script("terminate", Fault.SLOW)
    with pytest.raises(OutcomeUnknown):
        await world.guard.terminate(ref)


async def test_a_cancelled_call_is_cancelled_and_not_an_outcome() -> None:
    world = FakeWorld()
    world.guard = Guard(world.provider, account=ACCOUNT, now=world.clock.now)
    world.provider.faults.script("inventory", Fault.SLOW)
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
    world.guard.breaker = Breaker(failures_max=3, cool_down=timedelta(seconds=30))
    world.provider.faults.always("inventory", Fault.LISTING_FAILS)
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
    world.provider.faults.clear()
    await world.guard.inventory()
    await world.guard.offers()


async def test_a_terminate_goes_through_an_open_breaker() -> None:
    world = FakeWorld()
    ref = await world.guard.launch(world.order())
    world.guard.breaker = Breaker(failures_max=1)
    world.provider.faults.script("launch", Fault.LOST_WITHOUT_EFFECT)
    with pytest.raises(OutcomeUnknown):
        await world.guard.launch(world.order(2))
    with pytest.raises(NotCalled):
        await world.guard.offers()
    await world.guard.terminate(ref)
    assert world.alive(a_key()) == 0


async def test_a_definite_no_does_not_open_the_breaker() -> None:
    world = FakeWorld()
    world.guard.breaker = Breaker(failures_max=2)
    world.provider.faults.always("launch", Fault.NO_CAPACITY)
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

    async def draw(
        self,
        draws: Sequence[Draw],
        *,
        urgency: float,
        wait_seconds_max: float,
        idle_seconds_max: float = NEAR_SECONDS,
    ) -> float | None:
        self.asked.extend(draw.limit.bucket for draw in draws)
        return self.wait if self.wait <= wait_seconds_max else None

    async def slow(self, draw: Draw, retry_after_seconds: float) -> None:
        raise AssertionError("nobody throttles here")

    async def learn(self, draw: Draw, told: ToldLimit) -> None:
        raise AssertionError("nobody tells a limit here")


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
    limit = RateLimit("all", 1, 1.0, frozenset(Verb))
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


async def test_a_launch_that_waits_for_its_turn_keeps_nobody_else_waiting() -> None:
    clock, held = Clock(), asyncio.Event()
    limits = (
        RateLimit("all", 1, 1.0, frozenset(Verb)),
        RateLimit("launch", 1, 12.0, frozenset({Verb.LAUNCH})),
    )
    budget, slept = OneProcessBudget(clock.now), dict[str, list[float]](launch=[], other=[])

    def pacer(name: str, *, blocked: bool) -> Pacer:
        async def sleep(seconds: float) -> None:
            slept[name].append(seconds)
            if blocked and seconds:
                await held.wait()

        return Pacer(ACCOUNT, limits, now=clock.now, sleep=sleep, budget=budget, in_process=False)

    await pacer("other", blocked=False).wait_for_turn(Verb.LAUNCH, 15)
    waiting = asyncio.create_task(pacer("launch", blocked=True).wait_for_turn(Verb.LAUNCH, 15))
    for _ in range(10):
        await asyncio.sleep(0)
    assert slept["launch"] == [pytest.approx(12.0, abs=0.8)], (
        "it waits for its scarcest bucket, and draws the other later"
    )
    for _ in range(2):
        await pacer("other", blocked=False).wait_for_turn(Verb.TERMINATE, 60)
    assert slept["other"][1:] == [pytest.approx(1.15), pytest.approx(2.3)]
    waiting.cancel()


async def test_lists_that_fill_the_line_of_an_account_keep_no_launch_from_its_turn() -> None:
    clock = Clock()
    limits = (
        RateLimit("all", 1, 1.0, frozenset(Verb)),
        RateLimit("launch", 1, 12.0, frozenset({Verb.LAUNCH})),
    )
    budget = OneProcessBudget(clock.now)
    everything = Draw(ACCOUNT, limits[0], pace_of(calls=1, seconds=1.0))

    async def sleep(seconds: float) -> None:
        """Meanwhile others list machines, each of them as soon as its turn is less than five seconds away."""
        end = clock.now() + timedelta(seconds=seconds)
        while clock.now() < end:
            while await budget.draw([everything], urgency=0.6, wait_seconds_max=5) is not None:
                pass
            clock.advance(min(0.2, (end - clock.now()).total_seconds()))

    pacer = Pacer(ACCOUNT, limits, now=clock.now, sleep=sleep, budget=budget, in_process=False)
    begun, launches = clock.now(), list[datetime]()
    while clock.now() < begun + timedelta(minutes=4):
        try:
            await pacer.wait_for_turn(Verb.LAUNCH, 15)
            launches.append(clock.now())
        except LocallyThrottled:
            await sleep(0.2)
    assert all(later - earlier >= timedelta(seconds=12) for earlier, later in pairwise(launches))
    assert len(launches) >= 0.6 * 4 * 60 / 12


async def test_an_answer_that_tells_which_limit_is_empty_closes_that_one_for_no_longer_than_its_window() -> (
    None
):
    clock, budget = Clock(), OneProcessBudget(Clock().now)
    limits = (
        RateLimit("project", 500, 60.0, frozenset(Verb)),
        RateLimit("launch", 60, 60.0, frozenset({Verb.LAUNCH})),
    )
    pacer = Pacer(ACCOUNT, limits, now=clock.now, sleep=clock.sleep, budget=budget, in_process=False)
    await pacer.told([ToldLimit("project", 500, 60.0, left=0, resets_seconds=900_000_000.0)])
    await pacer.throttled(Verb.LAUNCH, 5.0)
    by_bucket = {bucket: row for (_, bucket), row in vars(budget)["_buckets"].items()}
    assert by_bucket["project"].closed_until == clock.now() + timedelta(seconds=60)
    assert by_bucket["project"].share_now(clock.now()) < 1.0
    assert "launch" not in by_bucket, "it was not empty"


async def test_a_budget_that_cannot_be_read_lets_nothing_leave() -> None:
    world = LambdaWorld()

    class Broken(FullBudget):
        async def draw(self, *args: object, **kwargs: object) -> float | None:
            raise ConnectionError("postgresql://user:hunter2@db")

    guard = Guard(
        world.provider, account=ACCOUNT, now=world.clock.now, budget=Broken(0.0), pace_in_process=False
    )
    with pytest.raises(NotCalled) as caught:
        await guard.launch(world.order())
    assert "hunter2" not in str(caught.value)
    assert world.network.requests == []
    assert guard.breaker.failures == 0


async def test_in_process_pacing_spaces_calls_in_real_time() -> None:
    clock = Clock()
    limit = RateLimit("all", 1, 0.05, frozenset({Verb.OFFERS}))
    fake = FakeProvider(now=clock.now)
    fake.capabilities = replace(fake.capabilities, rate_limits=(limit,))
    guard = Guard(fake, account=ACCOUNT, now=clock.now)
    begun = asyncio.get_running_loop().time()
    for _ in range(3):
        await guard.offers()
    assert asyncio.get_running_loop().time() - begun >= 0.1
