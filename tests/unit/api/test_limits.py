"""Token buckets, and counts of what is in progress."""

from control_plane.api.limits import KEYS_MAX, Grant, InProgress, Limiter


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
