"""What an hour of use of an offer costs us: never less than its price, and more with every disadvantage."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.effective_price import USE_SECONDS, History, Terms, effective_nano_per_hour
from control_plane.domain.money import NANO_MAX, Nano

PRICES = st.integers(0, NANO_MAX).map(Nano)
TERMS = st.builds(Terms, st.integers(0, 7_200), st.sampled_from([1, 60, 600, 3_600]))
HISTORIES = st.tuples(st.integers(0, 500), st.integers(0, 500)).map(lambda two: History(sum(two), two[1]))


def test_an_offer_without_setting_up_rounding_or_failures_costs_its_price() -> None:
    for price in (0, 1, 2_990_000_001, NANO_MAX):
        assert effective_nano_per_hour(Nano(price), Terms(), History(tried=7)) == price


def test_setting_up_counts_by_its_share_of_the_use_and_is_rounded_up_as_the_provider_does() -> None:
    hour = Nano(4_000_000_000)
    assert effective_nano_per_hour(hour, Terms(setup_seconds=USE_SECONDS // 4), History()) == 5_000_000_000
    assert effective_nano_per_hour(hour, Terms(1, 3_600), History()) == 5_000_000_000


def test_one_failure_proves_little_and_many_do() -> None:
    hour = Nano(1_000_000_000)
    once = effective_nano_per_hour(hour, Terms(300), History(1, 1))
    often = effective_nano_per_hour(hour, Terms(300), History(20, 15))
    none = effective_nano_per_hour(hour, Terms(300), History())
    assert none < once < none * 101 // 100
    assert often > none * 105 // 100


@given(PRICES, TERMS, HISTORIES)
def test_it_is_never_less_than_the_price_and_is_an_amount_that_we_count(
    price: Nano, terms: Terms, history: History
) -> None:
    assert price <= effective_nano_per_hour(price, terms, history) <= NANO_MAX


@given(PRICES, PRICES, TERMS, HISTORIES, st.integers(1, 600))
def test_every_disadvantage_costs_at_least_as_much(
    price: Nano, other: Nano, terms: Terms, history: History, more: int
) -> None:
    cost = effective_nano_per_hour(price, terms, history)
    worse = replace(history, tried=history.tried + more, failed=history.failed + more)
    assert effective_nano_per_hour(price, terms, worse) >= cost
    assert (
        effective_nano_per_hour(price, replace(terms, setup_seconds=terms.setup_seconds + more), history)
        >= cost
    )
    assert effective_nano_per_hour(price, terms, replace(history, tried=history.tried + more)) <= cost
    assert effective_nano_per_hour(max(price, other), terms, history) >= cost
