"""How long a balance lasts at the present rate."""

from datetime import timedelta

from control_plane.domain.balance import Balance
from control_plane.domain.money import NANO_PER_USD, Nano


def a_balance(*, available: int, per_hour: int) -> Balance:
    return Balance(
        posted_nano=Nano(available + 7 * NANO_PER_USD),
        held_nano=Nano(7 * NANO_PER_USD),
        due_nano=Nano(0),
        running_leases=1,
        running_nano_per_hour=Nano(per_hour),
    )


def test_what_is_on_hold_is_not_available_and_does_not_count_for_how_long_the_money_lasts() -> None:
    balance = a_balance(available=50 * NANO_PER_USD, per_hour=20 * NANO_PER_USD)
    assert balance.available_nano == 50 * NANO_PER_USD
    assert balance.lasts == timedelta(hours=2, minutes=30)


def test_a_second_that_is_not_covered_in_full_does_not_count() -> None:
    for available, seconds in ((3_599, 3_599), (3_600, 3_600), (3_601, 3_601)):
        assert a_balance(available=available, per_hour=3_600).lasts == timedelta(seconds=seconds)
    assert a_balance(available=99, per_hour=7_200).lasts == timedelta(seconds=49)


def test_money_lasts_no_time_when_none_is_available_and_has_no_end_when_nothing_costs() -> None:
    assert a_balance(available=0, per_hour=1).lasts == timedelta(0)
    assert a_balance(available=-5, per_hour=1).lasts == timedelta(0)
    assert a_balance(available=5, per_hour=0).lasts is None
    assert a_balance(available=2**62, per_hour=1).lasts is None
