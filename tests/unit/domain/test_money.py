"""Money: whole nano-dollars, rounded once, adding up however it is cut."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.money import (
    NANO_MAX,
    NANO_PER_USD,
    Nano,
    accrued,
    affordable,
    dollars,
    dollars_down,
    dollars_up,
    parse_usd,
    short_usd,
    usd,
)
from control_plane.domain.rating import charge

PRICES = st.integers(0, 100 * NANO_PER_USD).map(Nano)
GPU_SECONDS = st.integers(0, 64 * 86_400 * 400)


def test_a_short_amount_is_exact_and_has_two_places_at_least() -> None:
    amounts = (0, 2_490_000_000, 12_000_000_000, 1, -500_000_000)
    assert [short_usd(Nano(amount)) for amount in amounts] == [
        "0.00",
        "2.49",
        "12.00",
        "0.000000001",
        "-0.50",
    ]


@given(PRICES, GPU_SECONDS)
def test_what_accrues_is_the_exact_price_rounded_half_to_even(price: Nano, unit_seconds: int) -> None:
    # Fraction rounds half to even, in exact arithmetic.
    assert accrued(price, unit_seconds) == round(Fraction(price * unit_seconds, 3_600))


@pytest.mark.parametrize(("price", "expected"), [(1, 0), (3, 2), (5, 2), (7, 4)])
def test_exactly_half_a_nano_goes_to_the_even_side(price: int, expected: int) -> None:
    assert accrued(Nano(price), 1_800) == expected


@given(st.integers(1, 100 * NANO_PER_USD).map(Nano), st.integers(0, NANO_MAX).map(Nano))
def test_an_amount_pays_for_as_many_seconds_as_cost_no_more(price: Nano, amount: Nano) -> None:
    seconds = affordable(price, amount)
    assert accrued(price, seconds) <= amount < accrued(price, seconds + 1)


@pytest.mark.parametrize(("price", "amount"), [(0, 1), (-1, 1), (1, -1)])
def test_nothing_says_how_long_an_amount_lasts_at_no_price(price: int, amount: int) -> None:
    with pytest.raises(ValueError, match="a price is positive"):
        affordable(Nano(price), Nano(amount))


@given(PRICES, st.lists(GPU_SECONDS, min_size=2))
def test_however_usage_is_cut_the_charges_add_up_to_the_whole(price: Nano, marks: list[int]) -> None:
    cuts = sorted(marks)
    charges = [charge(price, before, after - before) for before, after in pairwise(cuts)]
    assert sum(charges) == accrued(price, cuts[-1]) - accrued(price, cuts[0])


@given(PRICES, GPU_SECONDS, GPU_SECONDS)
def test_a_charge_is_never_negative_and_never_a_nano_off(price: Nano, before: int, more: int) -> None:
    amount = charge(price, before, more)
    assert amount >= 0
    assert abs(amount - Fraction(price * more, 3_600)) <= 1


@pytest.mark.parametrize(("price", "unit_seconds"), [(-1, 1), (1, -1)])
def test_a_negative_price_or_duration_is_refused(price: int, unit_seconds: int) -> None:
    with pytest.raises(ValueError, match="never negative"):
        accrued(Nano(price), unit_seconds)


@given(st.integers(-NANO_MAX, NANO_MAX).map(Nano))
def test_an_amount_reads_back_as_it_was_written(amount: Nano) -> None:
    assert parse_usd(usd(amount)) == amount


@pytest.mark.parametrize(
    ("text", "nano"),
    [("25", 25_000_000_000), ("2.49", 2_490_000_000), ("0.000000001", 1), ("-0.5", -500_000_000), ("0", 0)],
)
def test_an_amount_as_people_write_it_is_read(text: str, nano: int) -> None:
    assert parse_usd(text) == nano


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        ".",
        ".5",
        "--1",
        "+1",
        "1e3",
        "1,5",
        "1_000",
        " 1",
        "1 ",
        "$1",
        "1.-5",
        "٣",
        "1.٣",
        "NaN",
        "1.2.3",
    ],
)
def test_an_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        parse_usd(text)


def test_a_tenth_decimal_place_is_refused_instead_of_rounded() -> None:
    with pytest.raises(ValueError, match="nine decimal places"):
        parse_usd("0.0000000001")


def test_the_largest_amount_fits_and_one_nano_more_is_refused() -> None:
    assert parse_usd(usd(Nano(NANO_MAX))) == NANO_MAX
    with pytest.raises(ValueError, match="too large"):
        parse_usd(usd(Nano(NANO_MAX + 1)))


def test_a_sentence_has_two_decimal_places_and_thousands_separators() -> None:
    for text, nearest, up, down in (
        ("0", "0.00", "0.00", "0.00"),
        ("1234567.891", "1,234,567.89", "1,234,567.90", "1,234,567.89"),
        ("0.005", "0.00", "0.01", "0.00"),
        ("0.015", "0.02", "0.02", "0.01"),
        ("25.52", "25.52", "25.52", "25.52"),
        ("-5.491", "-5.49", "-5.49", "-5.50"),
        ("-0.004", "0.00", "0.00", "-0.01"),
    ):
        amount = parse_usd(text)
        assert (dollars(amount), dollars_up(amount), dollars_down(amount)) == (nearest, up, down), text


@given(st.integers(-NANO_MAX, NANO_MAX).map(Nano), st.integers(-NANO_MAX, NANO_MAX).map(Nano))
def test_what_is_too_little_never_reads_as_enough(needed: Nano, there: Nano) -> None:
    def cents(text: str) -> int:
        return int(text.replace(",", "").replace(".", ""))

    if there < needed:
        assert cents(dollars_down(there)) < cents(dollars_up(needed))
