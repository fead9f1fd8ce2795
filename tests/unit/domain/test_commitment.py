"""A lease that is committed to: its use and the rest come to the price of the term, however time is cut."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.admission import month_part
from control_plane.domain.auto_release import AutoRelease, release_at, why
from control_plane.domain.funding import Funding, Keep, StopTimes, decide
from control_plane.domain.metering import (
    Bound,
    Interval,
    Meter,
    UsedUntil,
    due_intervals,
    ending,
    listed_bound,
    release_fee,
)
from control_plane.domain.money import NOTHING, Nano, accrued
from control_plane.domain.price import HOLD_SECONDS
from control_plane.domain.rating import charge
from control_plane.domain.tariff import Tariff, billing_start
from tests.support.tariff import a_tariff

READY = datetime(2026, 11, 20, 9, 17, 3, 250_000, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
PRICES = st.integers(1, 50_000_000_000).map(Nano)


def _of_term(price: Nano, units: int, days: int, *switches: datetime) -> Tariff:
    return a_tariff(READY, units, price, switched_at=tuple(sorted(switches)), committed_days=days)


def _charged(tariff: Tariff, intervals: list[Interval]) -> int:
    return sum(
        charge(tariff.price(stopped=each.stopped), each.unit_seconds_before, each.unit_seconds)
        for each in intervals
    )


def _metered(tariff: Tariff, cuts: list[datetime], stop: datetime, unused: int) -> list[Interval]:
    """The intervals that a meter makes that looks at each of these moments, and once more after the end."""
    made: list[Interval] = []
    meter = Meter(tariff, None, 0)
    looks = [UsedUntil(cut, cut, ended=False) for cut in cuts]
    for used in [*looks, UsedUntil(stop, stop, ended=True)]:
        if used.ended:
            meter = replace(meter, tariff=replace(tariff, unused_unit_seconds=unused))
        for interval in due_intervals(meter, used):
            made.append(interval)
            meter = replace(meter, metered_until=interval.ended_at, intervals=interval.number)
    return made


@given(
    PRICES,
    st.integers(1, 8),
    st.integers(1, 3),
    st.floats(0, 1),
    st.lists(st.floats(0, 1), max_size=6),
    st.lists(st.floats(0, 1), max_size=4),
)
def test_use_and_rest_come_to_the_price_of_the_term_however_time_is_cut(
    price: Nano, units: int, days: int, part: float, looks: list[float], stops: list[float]
) -> None:
    stop = READY + days * DAY * part
    switches = [READY + (stop - READY) * each for each in stops]
    tariff = _of_term(price, units, days, *switches)
    whole = accrued(price, units * days * 86_400)
    end = ending(tariff, whole, stop, released_at=stop)
    assert end.billed_until == stop
    assert not end.unbilled
    cuts = sorted(READY + (stop - READY) * each for each in looks)
    intervals = _metered(tariff, cuts, stop, end.unused_unit_seconds)
    assert _charged(tariff, intervals) == whole == tariff.most_nano
    assert [each.final for each in intervals] == [False] * (len(intervals) - 1) + [True]
    assert [each.number for each in intervals] == list(range(1, len(intervals) + 1))
    assert tariff.cost_until(stop) + release_fee(tariff, stop) == whole


@given(PRICES, st.integers(1, 8), st.integers(1, 1_100))
def test_a_term_that_is_used_to_its_end_costs_its_price_and_nothing_more(
    price: Nano, units: int, days: int
) -> None:
    tariff = _of_term(price, units, days)
    end = billing_start(READY) + days * DAY
    assert release_at(AutoRelease(), tariff) == tariff.committed_until == end
    assert why(AutoRelease(), tariff, end) == f"its term of {days:,} days is over"
    assert tariff.cost_until(end) == tariff.most_nano
    assert release_fee(tariff, end) == NOTHING
    assert ending(tariff, Nano(tariff.cost_until(end)), end, released_at=end).unused_unit_seconds == 0


def test_only_a_release_by_its_customer_costs_the_rest_of_the_term() -> None:
    tariff = _of_term(Nano(3_600), 2, 30)
    after = billing_start(READY) + 10 * DAY
    whole = Nano(2 * 30 * 86_400)
    assert ending(tariff, whole, after).unused_unit_seconds == 0
    assert ending(tariff, whole, after, released_at=after).unused_unit_seconds == 2 * 20 * 86_400
    assert (
        ending(replace(tariff, committed_days=None), whole, after, released_at=after).unused_unit_seconds == 0
    )


def test_time_that_is_not_billed_is_not_charged_as_the_rest_of_the_term_either() -> None:
    tariff = _of_term(Nano(3_600), 1, 30)
    start = billing_start(READY)
    used, listed = start + 10 * DAY, start + 10 * DAY - 10 * timedelta(minutes=1)
    end = ending(tariff, Nano(30 * 86_400), used, listed_bound(listed), released_at=used)
    assert end.billed_until == listed + timedelta(minutes=1)
    assert end.unused_unit_seconds == 20 * 86_400
    assert [each.seconds for each in end.unbilled] == [9 * 60]


def test_the_rest_costs_no_more_than_was_set_aside() -> None:
    tariff = _of_term(Nano(3_600), 1, 30)
    stop = billing_start(READY) + DAY
    end = ending(tariff, Nano(5 * 86_400), stop, released_at=stop)
    assert (end.billed_until, end.unused_unit_seconds) == (stop, 4 * 86_400)
    beyond = ending(tariff, Nano(86_400 - 10), stop, released_at=stop)
    assert (beyond.billed_until, beyond.unused_unit_seconds) == (stop - 10 * SECOND, 0)
    free = _of_term(NOTHING, 1, 30)
    assert ending(free, NOTHING, stop, released_at=stop).unused_unit_seconds == 29 * 86_400


def test_time_for_which_the_bill_was_paused_is_free() -> None:
    start = billing_start(READY)
    paused = replace(_of_term(Nano(3_600), 1, 30), paused_at=(start + DAY, start + 3 * DAY))
    stop = start + 10 * DAY
    whole = Nano(30 * 86_400)
    rest = ending(paused, whole, stop, Bound(stop, "never"), released_at=stop).unused_unit_seconds
    assert paused.committed_until == start + 30 * DAY
    assert paused.cost_until(stop) + paused.unused_cost(stop, rest) == whole - 2 * 86_400


def test_a_stopped_machine_of_a_term_costs_the_same_in_one_total() -> None:
    start = billing_start(READY)
    switched = a_tariff(READY, 1, Nano(7), stopped=Nano(3), switched_at=(start + DAY,), committed_days=2)
    assert switched.cost_until(start + 2 * DAY) == accrued(Nano(7), 2 * 86_400)
    assert not switched.is_stopped(start + DAY)
    assert switched.cuts == ()


@given(PRICES, st.integers(1, 8), st.integers(1, 40), st.floats(0, 1))
def test_the_hold_of_a_term_is_never_short(price: Nano, units: int, days: int, part: float) -> None:
    tariff = _of_term(price, units, days)
    whole = accrued(price, units * days * 86_400)
    now = READY + days * DAY * part
    used = tariff.cost_until(now)
    funding = Funding(
        nano_per_unit_hour=price,
        units=units,
        held_nano=whole,
        unposted_nano=used,
        available_nano=NOTHING,
        warned=False,
        most_left_nano=Nano(whole - used),
    )
    assert decide(funding, StopTimes()) == Keep()
    assert funding.cost_of(timedelta(seconds=HOLD_SECONDS)) <= funding.left_nano


def test_only_what_the_month_can_use_counts_against_its_limit() -> None:
    now = datetime(2026, 11, 30, 22, tzinfo=UTC)
    hold = Nano(1_000_000)
    assert month_part(Nano(1_000), hold, now, now) == 2_000
    assert month_part(Nano(1_000), hold, datetime(2026, 10, 3, tzinfo=UTC), now) == 720_000
    assert month_part(Nano(1_000), Nano(1_500), now, now) == 1_500
    assert month_part(Nano(1_001), hold, now + timedelta(minutes=30), now) == 1_502
