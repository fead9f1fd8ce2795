"""The pace of calls: never above a published limit, close to it when there is work, slower after a throttle."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.domain.call_budget import (
    RECOVERY,
    SHARE_MIN,
    SLOWED,
    Bucket,
    Pace,
    pace_of,
    start_of,
)
from tests.support.clock import START

SECOND = timedelta(seconds=1)
LIMITS = (
    (1, 1.0, None),  # Lambda: one call a second
    (1, 12.0, None),  # Lambda: a launch each 12 s
    (500, 60.0, None),  # Hyperstack, Verda: a window of a minute
    (60, 60.0, None),  # Verda: a path
    (30, 1.0, None),  # Vultr
    (2, 1.0, 5),  # EC2: RunInstances
    (10, 1.0, 50),  # EC2: DescribeInstances
    (1, 4.5, None),  # Vast: a minimum interval
)
"""Published limits of providers: calls, seconds, and the burst of a token bucket."""


def turns(pace: Pace, waits: Iterator[float], *, many: int) -> list[datetime]:
    """The moments of the turns of a caller that waits so long after each before it asks for the next."""
    bucket, now, found = Bucket(START), START, list[datetime]()
    for _ in range(many):
        now += timedelta(seconds=next(waits))
        start = start_of([(bucket, pace, 1)], urgency=1.0, not_before=now)
        bucket = bucket.drawn(pace, start, 1, now)
        found.append(start)
    return found


@dataclass
class Tokens:
    """A provider's token bucket."""

    size: float
    rate: float
    level: float
    at: datetime

    def take(self, at: datetime) -> bool:
        self.level = min(self.size, self.level + self.rate * (at - self.at).total_seconds())
        self.at = at
        self.level -= 1
        return self.level >= 0


@given(st.lists(st.floats(0, 3), min_size=1, max_size=20))
@settings(max_examples=40)
def test_no_window_and_no_token_bucket_ever_sees_more_than_its_limit(pauses: list[float]) -> None:
    for calls, seconds, burst in LIMITS:
        pace = pace_of(calls=calls, seconds=seconds, burst=burst)
        waits = (pauses[number % len(pauses)] if number % 7 == 0 else 0.0 for number in range(10_000))
        moments = turns(pace, waits, many=150)
        if burst is None:
            for number, first in enumerate(moments):
                within = sum(at - first < timedelta(seconds=seconds) for at in moments[number:])
                assert within <= calls, (calls, seconds)
        else:
            tokens = Tokens(burst, calls / seconds, burst, START)
            assert all(tokens.take(at) for at in moments), (calls, seconds, burst)


def test_at_least_four_fifths_of_each_limit_are_used_when_there_is_work() -> None:
    for calls, seconds, burst in LIMITS:
        pace = pace_of(calls=calls, seconds=seconds, burst=burst)
        used = timedelta(seconds=seconds) / pace.interval / calls
        assert used >= 0.8, (calls, seconds, used)


def test_less_urgent_calls_leave_a_part_of_a_burst_to_the_more_urgent_ones() -> None:
    pace, bucket = pace_of(calls=500, seconds=60.0), Bucket(START)

    def wait(urgency: float) -> timedelta:
        return start_of([(bucket, pace, 1)], urgency=urgency, not_before=START) - START

    for _ in range(pace.burst // 2):
        bucket = bucket.drawn(pace, START, 1, START)
    assert wait(0.4) > timedelta(0)
    assert wait(1.0) == timedelta(0)


def test_a_call_of_several_buckets_or_turns_waits_until_all_of_them_are_there() -> None:
    every, launch = pace_of(calls=1, seconds=1.0), pace_of(calls=1, seconds=12.0)
    used = Bucket(START).drawn(launch, START, 1, START)
    wanted = [(Bucket(START), every, 1), (used, launch, 1)]
    assert start_of(wanted, urgency=1.0, not_before=START) == START + launch.interval
    pace = pace_of(calls=500, seconds=60.0)
    bucket = Bucket(START).drawn(pace, START, pace.burst - 2, START)
    for turns, wait in ((2, 0), (3, 1), (5, 3)):
        assert (
            start_of([(bucket, pace, turns)], urgency=1.0, not_before=START) == START + wait * pace.interval
        )


def test_a_limit_beside_faster_ones_leaves_room_for_waiting_for_them() -> None:
    pace = pace_of(calls=1, seconds=12.0, others=1.0)
    assert pace.interval - pace.late_max >= 12 * SECOND
    assert pace.late_max == SECOND


def test_a_throttle_closes_a_bucket_and_slows_it_down_until_it_has_recovered() -> None:
    pace, bucket = pace_of(calls=500, seconds=60.0), Bucket(START)
    slowed = bucket.slowed(START, 30 * SECOND)
    assert start_of([(slowed, pace, 1)], urgency=1.0, not_before=START) == START + 30 * SECOND
    assert slowed.share_now(START) == SLOWED
    assert slowed.slowed(START + SECOND, 9 * SECOND).share_now(START + SECOND) > SLOWED, (
        "one throttle, told twice"
    )
    assert slowed.drawn(pace, START, 7, START).free_at == START + 7 * pace.interval / SLOWED
    assert slowed.share_now(START + RECOVERY) == 1.0
    for number in range(1, 30):
        slowed = slowed.slowed(START + number * 6 * SECOND, SECOND)
    assert slowed.share_now(START + 174 * SECOND) == SHARE_MIN


def test_what_a_provider_tells_is_a_ceiling_and_never_speeds_us_up() -> None:
    bucket = Bucket(START).told(0.5, closed_until=None)
    assert bucket.share_now(START) == 0.5
    assert bucket.told(2.0, closed_until=None).share_now(START) == 1.0
    later = START + 40 * SECOND
    closed = bucket.told(1.0, closed_until=later)
    assert closed.told(1.0, closed_until=START).closed_until == later, "what was closed opens no sooner"


def test_the_turns_of_this_minute_and_of_the_one_before_are_counted() -> None:
    pace, bucket = pace_of(calls=500, seconds=60.0), Bucket(START)
    seen = list[tuple[int, int]]()
    for after in (0, 30, 61, 119, 130, 500):
        now = START + after * SECOND
        bucket = bucket.drawn(pace, now, 3, now)
        seen.append((bucket.last_minute, bucket.this_minute))
    assert seen == [(0, 3), (0, 6), (6, 3), (6, 6), (6, 3), (0, 3)]
