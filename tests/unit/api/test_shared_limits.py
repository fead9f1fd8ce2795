"""Rates that hold for several processes together, played without a database."""

from collections.abc import Hashable, Sequence
from uuid import UUID

import pytest

from control_plane.api.limits import IDLE_SECONDS, KEYS_MAX, STALE_SECONDS, Limiter
from control_plane.domain.ids import OrganizationId
from control_plane.domain.request_budget import Ask, Given

ACME = (OrganizationId(UUID(int=1)), UUID(int=1))
OTHER = (OrganizationId(UUID(int=2)), UUID(int=2))
EVERY = 0.25


class Bucket:
    """The shared bucket, as the database's function keeps it."""

    def __init__(self) -> None:
        self.level: dict[UUID, tuple[float, float]] = {}

    def take(self, ask: Ask, now: float) -> Given:
        level, then = self.level.get(ask.bucket, (ask.burst, now))
        tokens = max(-ask.burst, min(ask.burst, level + (now - then) * ask.rate) - ask.taken)
        granted = max(0.0, min(ask.wanted, tokens))
        self.level[ask.bucket] = (tokens - granted, now)
        return Given(ask.bucket, granted, tokens - granted)


def share(limiters: Sequence[Limiter], bucket: Bucket, now: float) -> None:
    for limiter in limiters:
        asks = limiter.asks(now, 1_000)
        given: dict[Hashable, Given] = {key: bucket.take(ask, now) for key, ask in asks}
        limiter.answer(now, len(limiters), given)


def flood(limiters: Sequence[Limiter], bucket: Bucket | None, *, seconds: float, start: float = 0.0) -> int:
    """How many requests pass while every process is asked far more often than it may answer."""
    passed = 0
    for step in range(round(seconds / EVERY)):
        now = start + step * EVERY
        if bucket is not None:
            share(limiters, bucket, now)
        for limiter in limiters:
            for part in range(10):
                while limiter.take(ACME, now + part * EVERY / 10).allowed:
                    passed += 1
    return passed


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
@pytest.mark.parametrize("rate", [5, 100])
def test_however_many_processes_answer_a_caller_gets_its_rate_and_two_bursts_at_most(
    processes: int, rate: int
) -> None:
    burst, seconds = 2 * rate, 60
    limiters = [Limiter(rate=rate, burst=burst) for _ in range(processes)]
    passed = flood(limiters, Bucket(), seconds=seconds)
    assert rate * seconds * 0.95 <= passed <= rate * seconds + 2 * burst


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_without_the_shared_buckets_each_process_lives_on_its_share(processes: int) -> None:
    rate, burst, seconds = 80, 160, 60
    limiters = [Limiter(rate=rate, burst=burst) for _ in range(processes)]
    share(limiters, Bucket(), 0)
    passed = flood(limiters, None, seconds=seconds, start=0.0)
    assert rate * (seconds - STALE_SECONDS) * 0.9 <= passed <= rate * seconds + burst


def test_what_was_given_out_meanwhile_is_paid_back_when_the_buckets_are_there_again() -> None:
    rate, burst = 80, 160
    limiters = [Limiter(rate=rate, burst=burst) for _ in range(2)]
    bucket = Bucket()
    passed = flood(limiters, bucket, seconds=20)
    passed += flood(limiters, None, seconds=20, start=20)
    passed += flood(limiters, bucket, seconds=20, start=40)
    assert passed <= rate * 60 + burst / 2


def test_what_a_process_gave_out_before_it_knew_of_the_others_is_paid_back() -> None:
    rate, burst, seconds = 20, 40, 60
    limiters = [Limiter(rate=rate, burst=burst) for _ in range(2)]
    bucket = Bucket()
    passed = flood(limiters, None, seconds=1)
    passed += flood(limiters, bucket, seconds=seconds - 1, start=1)
    assert passed <= rate * seconds + 2 * burst


def test_a_process_that_is_asked_alone_gets_the_whole_rate() -> None:
    """A share is where a process begins; the rest goes to where the requests are."""
    rate, burst, seconds = 100, 200, 30
    busy, idle = Limiter(rate=rate, burst=burst), Limiter(rate=rate, burst=burst)
    bucket, passed = Bucket(), 0
    for step in range(round(seconds / EVERY)):
        now = step * EVERY
        share([busy, idle], bucket, now)
        while busy.take(ACME, now).allowed:
            passed += 1
    assert passed >= rate * seconds * 0.95


def test_a_caller_that_stays_below_its_rate_is_never_refused_and_seldom_asked_for() -> None:
    limiters = [Limiter(rate=100, burst=200) for _ in range(2)]
    bucket, asked = Bucket(), 0
    for step in range(400):
        now = step * EVERY
        for limiter in limiters:
            asks = limiter.asks(now, 1_000)
            asked += len(asks)
            limiter.answer(now, 2, {key: bucket.take(ask, now) for key, ask in asks})
            assert limiter.take(ACME, now).allowed
    assert asked < 400 * 2 / 20


def test_a_request_that_costs_more_than_is_left_is_asked_for_although_the_stock_is_not_low() -> None:
    limiter, bucket = Limiter(rate=10, burst=20), Bucket()
    share([limiter, limiter], bucket, 0)
    assert limiter.take(ACME, 0, 3).allowed
    share([limiter, limiter], bucket, 0)
    assert limiter.take(ACME, 0, 4).allowed
    assert not limiter.take(ACME, 0, 9).allowed
    share([limiter, limiter], bucket, 1)
    assert limiter.take(ACME, 1, 9).allowed


def test_callers_do_not_spend_each_others_tokens() -> None:
    limiters = [Limiter(rate=10, burst=20) for _ in range(2)]
    bucket = Bucket()
    flood(limiters, bucket, seconds=5)
    assert limiters[0].take(OTHER, 5).allowed


def test_who_was_idle_gives_its_stock_back() -> None:
    limiter, bucket = Limiter(rate=0.001, burst=100), Bucket()
    share([limiter, limiter], bucket, 0)
    assert limiter.take(ACME, 0).allowed
    share([limiter, limiter], bucket, 0)
    assert bucket.level[ACME[1]][0] == pytest.approx(100 - 51 + 1, abs=2)
    later = IDLE_SECONDS + 1
    share([limiter, limiter], bucket, later)
    assert bucket.level[ACME[1]][0] == pytest.approx(99, abs=1)
    assert not limiter.asks(later, 10), "and it is forgotten"


def test_a_report_that_did_not_arrive_is_made_again() -> None:
    limiter = Limiter(rate=10, burst=20)
    limiter.answer(0, 2, {})
    limiter.take(ACME, 0)
    asked = limiter.asks(0, 10)
    assert [ask.taken for _, ask in asked] == [10]
    limiter.unanswered(asked)
    assert [ask.taken for _, ask in limiter.asks(0, 10)] == [10]
    assert limiter.asks(0, 10) == []


def test_no_more_buckets_are_asked_for_at_once_than_allowed_and_the_others_follow() -> None:
    limiter = Limiter(rate=10, burst=20)
    limiter.answer(0, 2, {})
    for number in range(25):
        limiter.take((OrganizationId(UUID(int=number)), UUID(int=number)), 0)
    assert [len(limiter.asks(0, 10)) for _ in range(4)] == [10, 10, 5, 0]


def test_what_is_remembered_for_asking_is_bounded_as_the_buckets_are() -> None:
    limiter = Limiter(rate=10, burst=20)
    for number in range(KEYS_MAX + 10):
        limiter.take((OrganizationId(UUID(int=number)), UUID(int=number)), 0)
    assert len(limiter._touched) == KEYS_MAX


def test_a_refusal_says_when_the_debt_of_all_processes_is_paid() -> None:
    limiter = Limiter(rate=10, burst=20)
    limiter.answer(0, 2, {})
    while limiter.take(ACME, 0).allowed:
        pass
    asks = limiter.asks(0, 10)
    limiter.answer(0, 2, {key: Given(ask.bucket, 0.0, -15.0) for key, ask in asks})
    refused = limiter.take(ACME, 0)
    assert (refused.allowed, refused.remaining, refused.reset_seconds) == (False, 0, 2)


def test_a_cost_above_the_bucket_needs_a_full_one_and_the_rest_is_owed() -> None:
    limiter = Limiter(rate=1, burst=3)
    assert limiter.take(ACME, 0, 20).allowed
    assert limiter.owes(ACME, 0) is not None
    assert not limiter.take(ACME, 19, 20).allowed
    assert limiter.take(ACME, 20, 20).allowed
