"""Token buckets, and counts of what is in progress."""

import asyncio

from control_plane.api.limits import KEYS_MAX, Grant, InProgress, Limiter, Turns


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    limiter = Limiter(rate=2, burst=3)
    assert [limiter.take("a", 0).allowed for _ in range(4)] == [True, True, True, False]
    assert limiter.take("b", 0) == Grant(True, 2, 1)
    assert limiter.take("a", 0.4) == Grant(False, 0, 1)
    assert limiter.take("a", 0.5).allowed
    assert not limiter.take("a", 0.5).allowed
    assert limiter.take("a", 100) == Grant(True, 2, 1)


def test_a_look_takes_nothing() -> None:
    limiter = Limiter(rate=1, burst=1)
    assert all(limiter.look("a", 0).allowed for _ in range(3))
    limiter.take("a", 0)
    assert limiter.look("a", 0) == Grant(False, 0, 1)


def test_buckets_are_bounded() -> None:
    limiter = Limiter(rate=1, burst=1)
    limiter.take("first", 0)
    for number in range(KEYS_MAX):
        limiter.take(number, 0)
    assert limiter.look("first", 0).allowed, "the bucket that was unused for the longest time is dropped"
    assert not limiter.look(KEYS_MAX - 1, 0).allowed


def test_no_more_than_the_bound_is_in_progress_for_each_key() -> None:
    requests = InProgress(2)
    assert [requests.enter("a") for _ in range(3)] == [True, True, False]
    assert requests.enter("b")
    requests.leave("a")
    assert [requests.enter("a") for _ in range(2)] == [True, False]


def test_a_bucket_owes_what_a_request_cost_beyond_its_tokens_and_no_more_than_its_burst() -> None:
    limiter = Limiter(rate=2, burst=10)
    limiter.take("a", 0)
    limiter.charge("a", 5)
    assert limiter.owes("a", 0) is None
    assert limiter.look("a", 0) == Grant(True, 4, 3)
    limiter.charge("a", 1_000)
    assert limiter.owes("a", 0) == Grant(False, 0, 6)
    assert limiter.take("a", 4) == Grant(False, 0, 2)
    assert limiter.owes("a", 5) is None, "nothing is owed, and nothing is left"
    assert limiter.take("a", 6).allowed
    limiter.charge("unknown", 5)
    assert limiter.take("unknown", 0).remaining == 9


async def test_turns_are_taken_in_order_and_whoever_goes_leaves_the_queue() -> None:
    turns, ran = Turns(2), list[int]()

    async def run(number: int) -> None:
        await turns.take("a")
        ran.append(number)

    waiting = [asyncio.create_task(run(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert ran == [0, 1]
    await turns.take("b")
    turns.give_back("b")
    waiting[2].cancel()
    turns.give_back("a")
    await asyncio.wait(waiting[2:4], return_when=asyncio.ALL_COMPLETED)
    assert ran == [0, 1, 3]
    turns.give_back("a")
    await asyncio.gather(*waiting, return_exceptions=True)
    assert ran == [0, 1, 3, 4]
    turns.give_back("a")
    turns.give_back("a")
    assert not turns._queues, "nothing is remembered of those who are gone"
