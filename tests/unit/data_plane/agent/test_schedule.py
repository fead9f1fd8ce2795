"""When what is read, lived through without waiting."""

from collections import Counter

import pytest

from data_plane.agent.schedule import PERIODS, Schedule
from data_plane.documents.health import Group


def day(interval: float, jitter: float = 0.0) -> Counter[Group]:
    """How often each group is read in a day of looks that come a little late, then a little early."""
    schedule = Schedule(interval)
    count: Counter[Group] = Counter()
    for n in range(int(86_400 / interval)):
        count.update(schedule.due(n * interval + (jitter if n % 2 else -jitter)))
    return count


def test_the_first_look_reads_everything_and_who_is_there_comes_first() -> None:
    groups = Schedule(10).due(12_345.0)
    assert set(groups) == set(PERIODS)
    assert groups[0] == "identity"


@pytest.mark.parametrize("jitter", [0.0, 0.4, 1.0])
def test_every_group_keeps_its_period_whatever_the_looks_jitter(jitter: float) -> None:
    count = day(5, jitter)
    for group, period in PERIODS.items():
        assert abs(count[group] - 86_400 // period) <= 1, group


def test_a_look_a_second_reads_nothing_more_often_than_its_period() -> None:
    count = day(1)
    assert count["throttle"] == 86_400 // 5
    assert count["usage"] == 86_400 // 10
    assert count["identity"] == 24


def test_rare_looks_read_at_every_look_what_is_due_by_then() -> None:
    count = day(600)
    assert count["usage"] == count["ecc"] == 144
    assert count["identity"] == 24


def test_a_look_between_two_turns_waits_for_the_nearer() -> None:
    schedule = Schedule(4)
    schedule.due(0)
    read = [n for n in range(4, 61, 4) if "usage" in schedule.due(n)]
    assert read == [8, 16, 24, 32, 40, 48, 56]  # 10 s are no multiple of 4: 8 is as near as 12.


def test_what_is_hastened_is_read_once_at_the_next_look_and_then_in_its_period() -> None:
    schedule = Schedule(10)
    schedule.due(0)
    schedule.hasten("identity")
    schedule.hasten("identity")
    assert "identity" in schedule.due(10)
    assert "identity" not in schedule.due(20)
    assert "identity" in schedule.due(10 + PERIODS["identity"])
