"""Whether a running lease can go on: each decision at its boundary, and lives that are never overspent."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.domain.funding import END_BELOW, RENEW_BELOW, End, Funding, Keep, Renew, Warn, decide
from control_plane.domain.money import NANO_PER_USD, Nano, accrued

HOUR_COST = 3_600 * 8
"""At one nano per GPU-second on eight GPUs, a second costs eight."""


def a_funding(**other: object) -> Funding:
    plain = Funding(
        nano_per_gpu_hour=Nano(3_600),
        gpu_count=8,
        held_nano=Nano(HOUR_COST),
        unposted_nano=Nano(0),
        available_nano=Nano(0),
        warned=False,
    )
    return replace(plain, **other)  # type: ignore[arg-type]


HALF = int(RENEW_BELOW.total_seconds()) * 8
LAST = int(END_BELOW.total_seconds()) * 8


def test_half_an_hour_left_is_enough() -> None:
    assert decide(a_funding(held_nano=Nano(HALF), available_nano=Nano(HOUR_COST))) == Keep()


def test_a_nano_less_than_half_an_hour_is_filled_up_to_a_whole_one() -> None:
    left = HALF - 1
    funding = a_funding(held_nano=Nano(left), available_nano=Nano(HOUR_COST - left))
    assert decide(funding) == Renew(Nano(HOUR_COST - left))


def test_what_is_used_and_not_posted_does_not_count_as_left() -> None:
    funding = a_funding(unposted_nano=Nano(HOUR_COST - HALF + 1), available_nano=Nano(HOUR_COST))
    assert decide(funding) == Renew(Nano(HOUR_COST - HALF + 1))


def test_a_balance_that_is_a_nano_short_warns() -> None:
    left = HALF - 1
    short = a_funding(held_nano=Nano(left), available_nano=Nano(HOUR_COST - left - 1))
    assert isinstance(decide(short), Warn)


def test_a_customer_is_warned_once() -> None:
    assert decide(a_funding(held_nano=Nano(HALF - 1), warned=True)) == Keep()


def test_a_lease_ends_only_when_its_last_two_minutes_begin() -> None:
    assert isinstance(decide(a_funding(held_nano=Nano(LAST))), Warn)
    assert isinstance(decide(a_funding(held_nano=Nano(LAST - 1))), End)


def test_money_that_came_in_time_saves_a_lease_at_the_very_end() -> None:
    funding = a_funding(held_nano=Nano(1), available_nano=Nano(HOUR_COST - 1), warned=True)
    assert isinstance(decide(funding), Renew)


def test_a_refusal_says_what_is_there_and_what_is_missing() -> None:
    warn = decide(a_funding(held_nano=Nano(HALF - 1), available_nano=Nano(5)))
    assert isinstance(warn, Warn)
    assert "0.000000005 USD is available" in warn.why
    assert "0.000014401 more" in warn.why


def _life(
    price: Nano, gpus: int, balance: int, every: timedelta, post_every: timedelta
) -> tuple[int, timedelta, bool]:
    """Run one lease until it ends: what was used in all, how long it ran after its warning, whether it was warned."""
    hold = accrued(price, gpus * 3_600)
    available, held, posted = balance - hold, int(hold), 0
    warned_at: timedelta | None = None
    now = next_post = timedelta(0)
    while True:
        now += every
        used = accrued(price, gpus * int(now.total_seconds()))
        if now >= next_post + post_every:
            next_post = now
            # A posted charge comes out of the hold, and a hold that is used up keeps nothing back.
            amount = used - posted
            out_of_hold = min(held, amount)
            held, posted, available = held - out_of_hold, used, available - (amount - out_of_hold)
        funding = Funding(
            price, gpus, Nano(held), Nano(used - posted), Nano(available), warned_at is not None
        )
        match decide(funding):
            case Renew(more_nano=more):
                held, available, warned_at = held + more, available - more, None
            case Warn():
                warned_at = now
            case End():
                return used, now - (warned_at or now), warned_at is not None
            case Keep():
                pass


@settings(max_examples=40)
@given(
    price=st.integers(10_000_000, 20 * NANO_PER_USD).map(Nano),
    gpus=st.sampled_from([1, 2, 8]),
    hours=st.floats(1, 4),
    every=st.integers(10, int(END_BELOW.total_seconds())).map(lambda seconds: timedelta(seconds=seconds)),
    post_every=st.integers(60, 7_200).map(lambda seconds: timedelta(seconds=seconds)),
)
def test_however_often_it_is_looked_at_a_balance_is_never_overspent(
    price: Nano, gpus: int, hours: float, every: timedelta, post_every: timedelta
) -> None:
    hold = accrued(price, gpus * 3_600)
    balance = int(hold * hours)
    used, after_warning, warned = _life(price, gpus, max(hold, balance), every, post_every)
    assert used <= max(hold, balance)
    assert warned
    assert after_warning >= RENEW_BELOW - END_BELOW - 2 * every
