"""When a lease is released by itself: the earliest of its limits, and never a nano-dollar too late."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.auto_release import SECONDS_MAX, AutoRelease, release_at, why
from control_plane.domain.money import NANO_PER_USD, Nano, accrued
from control_plane.domain.tariff import billing_start, unit_seconds_total
from tests.support.clock import START
from tests.support.tariff import a_tariff

SECOND = timedelta(seconds=1)
READY = START + timedelta(microseconds=250)
PRICE = Nano(3_600_000_000)
"""A milli-dollar a second."""


def test_without_a_limit_a_lease_is_never_released_by_itself() -> None:
    assert release_at(AutoRelease(), a_tariff(READY, 8, PRICE)) is None


def test_the_time_to_live_counts_from_ready() -> None:
    assert release_at(AutoRelease(after_seconds=90), a_tariff(READY, 8, PRICE)) == READY + 90 * SECOND


def test_an_amount_is_spent_when_its_last_whole_second_ends() -> None:
    limit = AutoRelease(spend_nano=Nano(NANO_PER_USD))
    assert release_at(limit, a_tariff(READY, 1, PRICE)) == billing_start(READY) + 1_000 * SECOND
    assert release_at(limit, a_tariff(READY, 3, PRICE)) == billing_start(READY) + 333 * SECOND


def test_the_earlier_limit_counts_and_gives_the_reason() -> None:
    for limits, seconds, word in (
        (AutoRelease(60, Nano(NANO_PER_USD)), None, "60 seconds after it was ready"),
        (AutoRelease(86_400, Nano(NANO_PER_USD)), 1_000, "before its cost would exceed 1.00 USD"),
    ):
        tariff = a_tariff(READY, 1, PRICE)
        at = release_at(limits, tariff)
        assert at is not None
        assert at == (READY + 60 * SECOND if seconds is None else billing_start(READY) + seconds * SECOND)
        assert word in why(limits, tariff, at)


def test_a_free_lease_spends_nothing_and_an_amount_for_centuries_is_no_limit() -> None:
    assert release_at(AutoRelease(spend_nano=Nano(1)), a_tariff(READY, 8, Nano(0))) is None
    assert release_at(AutoRelease(spend_nano=Nano(2**62)), a_tariff(READY, 1, Nano(1))) is None


@given(
    st.integers(1, 200 * NANO_PER_USD).map(Nano),
    st.integers(1, 16),
    st.integers(0, 10**15).map(Nano),
    st.integers(0, 999_999),
)
def test_the_bill_until_then_never_exceeds_the_amount_and_one_more_second_would(
    price: Nano, units: int, spend: Nano, microsecond: int
) -> None:
    ready_at = START + timedelta(microseconds=microsecond)
    at = release_at(AutoRelease(spend_nano=spend), a_tariff(ready_at, units, price))
    if at is None:
        assert accrued(price, SECONDS_MAX * units) <= spend
        return
    assert at >= ready_at
    assert accrued(price, unit_seconds_total(ready_at, units, at)) <= spend
    if price * units >= 3_600:
        assert accrued(price, unit_seconds_total(ready_at, units, at + SECOND)) > spend
