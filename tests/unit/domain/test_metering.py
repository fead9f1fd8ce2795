"""From moments to billable seconds: whatever moments the loop wakes at, the same seconds come out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.metering import (
    HOUR,
    Bound,
    Ending,
    Interval,
    Meter,
    Unbilled,
    Use,
    UsedUntil,
    due_intervals,
    ending,
    next_hour,
    used_until,
)
from control_plane.domain.money import NANO_PER_USD, Nano, accrued
from control_plane.domain.tariff import billing_end, billing_start, unit_seconds_total
from tests.support.tariff import a_tariff

SECOND = timedelta(seconds=1)
DAY = datetime(2026, 11, 20, tzinfo=UTC)
MOMENTS = st.timedeltas(timedelta(0), timedelta(days=2)).map(lambda since: DAY + since)
DURATIONS = st.timedeltas(timedelta(0), timedelta(hours=9))
GPUS = st.integers(1, 8)


def _certain(at: datetime, *, ended: bool = False) -> UsedUntil:
    return UsedUntil(at, at, ended)


def _wake(meter: Meter, used: UsedUntil) -> tuple[Meter, list[Interval]]:
    """One activation, and where it leaves the meter."""
    made = list(due_intervals(meter, used))
    if made:
        meter = Meter(meter.tariff, made[-1].ended_at, made[-1].number)
    return meter, made


def _metered(ready_at: datetime, gpus: int, wakes: list[datetime], ended_at: datetime) -> list[Interval]:
    """The life of a lease: awake at `wakes` while it runs, and once after its end."""
    meter = Meter(a_tariff(ready_at, gpus), None, 0)
    intervals: list[Interval] = []
    for at in sorted(wakes):
        meter, made = _wake(meter, _certain(min(at, ended_at)))
        intervals += made
    return intervals + _wake(meter, _certain(ended_at, ended=True))[1]


LIVES = st.tuples(MOMENTS, GPUS, st.lists(DURATIONS, max_size=12), DURATIONS).map(
    lambda life: (life[0], life[1], [life[0] + wake for wake in life[2]], life[0] + life[3])
)
Life = tuple[datetime, int, list[datetime], datetime]


@given(LIVES)
def test_however_time_is_cut_the_intervals_follow_each_other_without_gap_or_overlap(life: Life) -> None:
    ready_at, gpus, wakes, ended_at = life
    intervals = _metered(ready_at, gpus, wakes, ended_at)
    assert intervals[0].started_at == billing_start(ready_at)
    assert intervals[-1].ended_at == billing_end(ready_at, ended_at)
    assert [interval.number for interval in intervals] == list(range(1, len(intervals) + 1))
    for before, after in pairwise(intervals):
        assert before.ended_at == after.started_at
        assert before.unit_seconds_before + before.unit_seconds == after.unit_seconds_before


@given(LIVES)
def test_however_time_is_cut_the_gpu_seconds_are_those_of_the_whole(life: Life) -> None:
    ready_at, gpus, wakes, ended_at = life
    intervals = _metered(ready_at, gpus, wakes, ended_at)
    assert sum(interval.unit_seconds for interval in intervals) == unit_seconds_total(
        ready_at, gpus, ended_at
    )


@given(LIVES)
def test_the_intervals_do_not_depend_on_when_the_loop_woke(life: Life) -> None:
    ready_at, gpus, wakes, ended_at = life
    assert _metered(ready_at, gpus, wakes, ended_at) == _metered(ready_at, gpus, [], ended_at)


@given(LIVES)
def test_an_interval_lies_within_one_utc_hour_and_only_the_last_ends_inside_it(life: Life) -> None:
    ready_at, gpus, wakes, ended_at = life
    intervals = _metered(ready_at, gpus, wakes, ended_at)
    for interval in intervals:
        assert interval.ended_at <= next_hour(interval.started_at)
        assert interval.unit_seconds == (interval.ended_at - interval.started_at) // SECOND * gpus
        assert interval.final == (interval is intervals[-1])
        if not interval.final:
            assert interval.ended_at == next_hour(interval.started_at)


@given(LIVES)
def test_a_running_lease_is_never_metered_beyond_what_is_certain(life: Life) -> None:
    ready_at, gpus, wakes, _ = life
    meter = Meter(a_tariff(ready_at, gpus), None, 0)
    for at in sorted(wakes):
        meter, made = _wake(meter, _certain(at))
        assert all(interval.ended_at <= at for interval in made)


@given(LIVES)
def test_waking_twice_at_one_moment_makes_nothing_new(life: Life) -> None:
    ready_at, gpus, wakes, _ = life
    meter = Meter(a_tariff(ready_at, gpus), None, 0)
    for at in sorted(wakes):
        meter, _ = _wake(meter, _certain(at))
        assert _wake(meter, _certain(at))[1] == []


@given(LIVES, MOMENTS)
def test_certainty_that_goes_backwards_takes_nothing_back(life: Life, earlier: datetime) -> None:
    ready_at, gpus, wakes, _ = life
    meter = Meter(a_tariff(ready_at, gpus), None, 0)
    for at in sorted(wakes):
        meter, _ = _wake(meter, _certain(at))
    if meter.metered_until is not None and earlier <= meter.metered_until:
        assert _wake(meter, _certain(earlier))[1] == []


@given(MOMENTS, st.timedeltas(timedelta(hours=-4), timedelta(0)))
def test_an_end_before_the_start_bills_nothing_and_still_closes_the_meter(
    ready_at: datetime, back: timedelta
) -> None:
    (only,) = due_intervals(Meter(a_tariff(ready_at, 8), None, 0), _certain(ready_at + back, ended=True))
    assert (only.unit_seconds, only.final, only.started_at) == (0, True, only.ended_at)


def test_the_first_and_the_last_broken_second_are_the_customers() -> None:
    ready_at = DAY + timedelta(milliseconds=1)
    assert billing_start(ready_at) == DAY + SECOND
    assert billing_end(ready_at, DAY + timedelta(seconds=5, milliseconds=999)) == DAY + 5 * SECOND
    assert unit_seconds_total(ready_at, 8, DAY + timedelta(seconds=5, milliseconds=999)) == 32


def test_a_lease_ready_on_the_second_is_billed_from_it() -> None:
    assert billing_start(DAY) == DAY


def test_an_hour_is_closed_by_evidence_at_its_very_end_and_not_a_moment_before() -> None:
    meter = Meter(a_tariff(DAY, 1), None, 0)
    just_before = DAY + HOUR - timedelta(microseconds=1)
    assert list(due_intervals(meter, _certain(just_before))) == []
    (hour,) = due_intervals(meter, _certain(DAY + HOUR))
    assert (hour.unit_seconds, hour.final) == (3_600, False)


def test_a_lease_that_ends_on_the_hour_has_one_final_interval_and_no_empty_one() -> None:
    (only,) = due_intervals(Meter(a_tariff(DAY, 1), None, 0), _certain(DAY + HOUR, ended=True))
    assert (only.unit_seconds, only.final) == (3_600, True)


def test_hours_are_utc_hours_wherever_the_clock_hangs() -> None:
    kathmandu = timezone(timedelta(hours=5, minutes=45))
    assert next_hour(DAY.astimezone(kathmandu)) == DAY + HOUR


@pytest.mark.parametrize("minutes", [0, 59])
def test_the_next_hour_is_strictly_later(minutes: int) -> None:
    assert next_hour(DAY + timedelta(minutes=minutes)) == DAY + HOUR


READY = DAY
NOW = DAY + 3 * HOUR
PRICE = Nano(3_600)
"""One nano-dollar a second, on one GPU."""
PLENTY = 1_000 * 24 * 3_600
"""A thousand days at this price."""


def _use(
    *,
    ready_at: datetime = READY,
    billed_until: datetime | None = None,
    evidence_at: datetime | None = NOW,
    suspect_since: datetime | None = None,
    set_aside_nano: int = PLENTY,
    release_at: datetime | None = None,
) -> Use:
    return Use(
        ready_at=ready_at,
        billed_until=billed_until,
        evidence_at=evidence_at,
        suspect_since=suspect_since,
        units=1,
        nano_per_unit_hour=PRICE,
        stopped_nano_per_unit_hour=PRICE,
        set_aside_nano=Nano(set_aside_nano),
        release_at=release_at,
    )


def test_nothing_is_used_after_the_auto_release_while_the_loop_that_ends_the_lease_is_late() -> None:
    due = NOW - HOUR
    assert used_until(_use(release_at=due), NOW) == UsedUntil(due, due, ended=False)
    assert used_until(_use(release_at=due, evidence_at=due - HOUR), NOW).at_most == due
    assert used_until(_use(release_at=NOW + HOUR), NOW) == used_until(_use(), NOW)


def test_a_lease_whose_machine_is_listed_now_has_certainly_been_used_until_now() -> None:
    assert used_until(_use(), NOW) == UsedUntil(NOW, NOW, ended=False)


def test_time_since_the_last_sighting_is_not_certain_and_may_still_be_billed() -> None:
    assert used_until(_use(evidence_at=NOW - HOUR), NOW) == UsedUntil(NOW - HOUR, NOW, ended=False)


def test_a_machine_that_was_never_listed_is_evidence_of_nothing() -> None:
    assert used_until(_use(evidence_at=None), NOW) == UsedUntil(READY, NOW, ended=False)


def test_a_proof_that_speaks_against_a_machine_ends_certainty_where_it_began() -> None:
    assert used_until(_use(suspect_since=NOW - HOUR), NOW) == UsedUntil(NOW - HOUR, NOW, ended=False)


def test_the_earlier_of_doubt_and_silence_counts() -> None:
    for evidence, suspect in ((HOUR, 2 * HOUR), (2 * HOUR, HOUR)):
        use = _use(evidence_at=NOW - evidence, suspect_since=NOW - suspect)
        assert used_until(use, NOW).certain == NOW - 2 * HOUR


def test_once_billing_has_stopped_nothing_else_counts() -> None:
    ended_at = NOW - 2 * HOUR
    for evidence in (None, READY, NOW):
        for suspect in (None, READY, NOW - HOUR):
            use = _use(billed_until=ended_at, evidence_at=evidence, suspect_since=suspect)
            assert used_until(use, NOW) == UsedUntil(ended_at, ended_at, ended=True)


@given(MOMENTS, st.none() | MOMENTS, st.none() | MOMENTS, MOMENTS)
def test_what_is_certain_is_never_before_the_start_and_never_after_what_may_be_billed(
    ready_at: datetime, evidence_at: datetime | None, suspect_since: datetime | None, now: datetime
) -> None:
    used = used_until(_use(ready_at=ready_at, evidence_at=evidence_at, suspect_since=suspect_since), now)
    assert ready_at <= used.certain <= used.at_most
    assert used.at_most == max(ready_at, now)


@given(MOMENTS, st.none() | MOMENTS, MOMENTS, DURATIONS)
def test_certainty_only_grows_while_the_same_is_known(
    ready_at: datetime, evidence_at: datetime | None, now: datetime, later: timedelta
) -> None:
    use = _use(ready_at=ready_at, evidence_at=evidence_at)
    assert used_until(use, now).certain <= used_until(use, now + later).certain


def test_use_beyond_what_was_set_aside_is_not_certain_and_may_be_billed_once_the_hold_is_renewed() -> None:
    assert used_until(_use(set_aside_nano=3_600), NOW) == UsedUntil(READY + HOUR, NOW, ended=False)
    assert used_until(_use(set_aside_nano=3 * 3_600), NOW) == UsedUntil(NOW, NOW, ended=False)
    earlier = _use(set_aside_nano=3_600, evidence_at=READY + SECOND)
    assert used_until(earlier, NOW).certain == READY + SECOND


USED_UP = "the money set aside for the lease was used up"


def test_a_lease_that_costs_nothing_is_always_funded() -> None:
    free = replace(_use(set_aside_nano=0), nano_per_unit_hour=Nano(0))
    assert free.used_up_at is None
    assert used_until(free, NOW) == UsedUntil(NOW, NOW, ended=False)
    assert ending(a_tariff(READY, 1, Nano(0)), Nano(0), NOW) == Ending(NOW)


@given(
    MOMENTS, GPUS, st.integers(1_000, 20 * NANO_PER_USD), st.integers(0, 30 * 24 * 3_600), st.integers(0, 9)
)
def test_until_it_is_no_longer_funded_a_lease_costs_at_most_what_was_set_aside_and_a_second_later_more(
    ready_at: datetime, gpus: int, price: int, seconds: int, extra: int
) -> None:
    set_aside = Nano(accrued(Nano(price), gpus * seconds) + extra)
    tariff = a_tariff(ready_at, gpus, Nano(price))
    until = tariff.funded_until(set_aside)
    assert until is not None
    assert until.microsecond == 0
    assert until >= billing_start(ready_at) + seconds * SECOND, (
        "what was set aside for a time covers that time"
    )
    assert tariff.cost_until(until) <= set_aside
    assert tariff.cost_until(until + SECOND) > set_aside


def test_a_lease_that_ends_is_billed_at_most_until_its_money_was_used_up() -> None:
    day = Nano(24 * 3_600)
    assert ending(a_tariff(READY), day, NOW) == Ending(NOW)
    exactly = Nano(3 * 3_600)
    assert ending(a_tariff(READY), exactly, NOW) == Ending(NOW)
    parts = NOW + timedelta(microseconds=1)
    assert ending(a_tariff(READY), exactly, parts) == Ending(parts), "parts of seconds are never billed"
    short = Nano(3 * 3_600 - 1)
    assert ending(a_tariff(READY), short, NOW) == Ending(NOW - SECOND, (Unbilled(1, Nano(1), USED_UP),))
    gpus = 8
    hour = Nano(8 * 3_600)
    assert ending(a_tariff(READY, gpus), hour, NOW) == Ending(
        READY + HOUR, (Unbilled(2 * 3_600, Nano(2 * 8 * 3_600), USED_UP),)
    )


def test_use_that_is_not_billed_for_several_reasons_is_counted_once_for_each() -> None:
    listed = Bound(READY + 2 * HOUR, "not listed")
    day, hour = Nano(24 * 3_600), Nano(3_600)
    not_listed = Unbilled(3_600, Nano(3_600), "not listed")
    assert ending(a_tariff(READY), day, NOW, listed) == Ending(listed.until, (not_listed,))
    both = ending(a_tariff(READY), hour, NOW, listed)
    assert both == Ending(READY + HOUR, (not_listed, Unbilled(3_600, Nano(3_600), USED_UP)))
    assert ending(a_tariff(READY), hour, NOW, Bound(NOW, "not listed")).unbilled == (
        Unbilled(2 * 3_600, Nano(2 * 3_600), USED_UP),
    )
    free = ending(a_tariff(READY, 1, Nano(0)), Nano(0), NOW, listed)
    assert free == Ending(listed.until, (Unbilled(3_600, Nano(0), "not listed"),))
