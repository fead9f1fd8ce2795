"""Whether a running lease can go on: each decision at its boundary, and lives that are never overspent."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.domain import funding as funding_rules
from control_plane.domain.funding import (
    DATA_KEPT_MIN,
    END_BELOW,
    HOLD,
    LOOK_AGAIN_AFTER,
    RENEW_BELOW,
    STOP_TAKES,
    Decision,
    End,
    Funding,
    Keep,
    Reduce,
    Renew,
    Resume,
    Stop,
    StopTimes,
    Warn,
    first_look,
    next_look,
)
from control_plane.domain.money import NANO_PER_USD, Nano, accrued

TIMES = StopTimes()
HOUR_COST = 3_600 * 8
"""At one nano per unit-second on eight GPUs, a second costs eight."""


def decide(funding: Funding) -> Decision:
    return funding_rules.decide(funding, TIMES)


def a_funding(**other: object) -> Funding:
    plain = Funding(
        nano_per_unit_hour=Nano(3_600),
        units=8,
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


def test_a_warning_is_withdrawn_when_the_end_is_far_again() -> None:
    funding = a_funding(held_nano=Nano(HALF), warned=True)
    assert decide(funding) == Keep(unwarns=True)


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


def test_a_suspended_organization_uses_up_its_hold_whatever_its_balance() -> None:
    rich = a_funding(held_nano=Nano(HALF - 1), available_nano=Nano(10 * HOUR_COST), spends=False)
    warned = decide(rich)
    assert isinstance(warned, Warn)
    assert "suspended" in warned.why
    assert decide(replace(rich, warned=True)) == Keep()
    assert decide(replace(rich, held_nano=Nano(HALF))) == Keep()
    ended = decide(replace(rich, held_nano=Nano(LAST - 1)))
    assert isinstance(ended, End)
    assert "suspended" in ended.why


def test_money_that_came_in_time_saves_a_lease_at_the_very_end() -> None:
    funding = a_funding(held_nano=Nano(1), available_nano=Nano(HOUR_COST - 1), warned=True)
    assert isinstance(decide(funding), Renew)


def test_a_refusal_says_what_is_there_and_what_is_missing() -> None:
    warn = decide(a_funding(held_nano=Nano(HALF - 1), available_nano=Nano(5)))
    assert isinstance(warn, Warn)
    assert "0.00 USD is available" in warn.why
    assert "0.01 USD more" in warn.why


NOW = datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PRICES = st.integers(1, 20 * NANO_PER_USD).map(Nano)


def later(funding: Funding, seconds: int) -> Funding:
    """The same hold after `seconds` more of use."""
    used = funding.cost_of(timedelta(seconds=seconds))
    return replace(funding, unposted_nano=Nano(funding.unposted_nano + used))


DAYS = 30 * 24 * HOUR_COST


def a_term(held: int = DAYS, **other: object) -> Funding:
    """A lease that was committed to, with 30 days of its term left."""
    return a_funding(held_nano=Nano(held), most_left_nano=Nano(DAYS), **other)


def test_a_term_is_not_looked_at_while_the_money_for_it_is_there() -> None:
    assert decide(a_term()) == Keep()
    assert decide(a_term(spends=False)) == Keep()


def test_of_a_term_as_much_is_given_back_as_is_lost_but_an_hour_stays() -> None:
    for lost, less in ((1, 1), (DAYS - HOUR_COST, DAYS - HOUR_COST), (DAYS, DAYS - HOUR_COST)):
        for spends in (True, False):
            found = decide(a_term(available_nano=Nano(-lost), spends=spends))
            assert isinstance(found, Reduce), lost
            assert found.less_nano == less, lost
    assert decide(a_term(HOUR_COST, available_nano=Nano(-DAYS))) == Keep(), "the hour is used, as any other"


def test_a_term_whose_money_is_lost_is_warned_of_and_ends_as_any_other_lease() -> None:
    warned = decide(a_term(HALF - 1, available_nano=Nano(-DAYS)))
    assert isinstance(warned, Warn)
    assert isinstance(decide(a_term(LAST - 1, available_nano=Nano(-DAYS), warned=True)), End)
    assert decide(a_term(HALF - 1, available_nano=Nano(HOUR_COST))) == Renew(Nano(HOUR_COST - HALF + 1))


def test_the_rest_of_a_term_is_set_aside_again_once_there_is_money_for_all_of_it() -> None:
    missing = DAYS - HOUR_COST
    assert decide(a_term(HOUR_COST, available_nano=Nano(missing - 1))) == Keep()
    assert decide(a_term(HOUR_COST, available_nano=Nano(missing))) == Renew(Nano(missing))
    assert decide(a_term(HOUR_COST, available_nano=Nano(missing), spends=False)) == Keep()


def test_a_customer_reads_how_much_of_its_term_is_gone_and_how_far_the_rest_goes() -> None:
    price = Nano(NANO_PER_USD)
    found = decide(
        Funding(
            nano_per_unit_hour=price,
            units=1,
            held_nano=Nano(100 * price),
            unposted_nano=Nano(0),
            available_nano=Nano(-40 * price - 1),
            warned=False,
            most_left_nano=Nano(100 * price),
        )
    )
    assert isinstance(found, Reduce)
    assert found.why == (
        "40.01 USD of what was set aside for the term is gone; top up as much, or the lease ends when the 59.99 USD that"
        " are set aside now are used."
    )


def test_a_fresh_hold_is_looked_at_when_half_of_it_is_used() -> None:
    assert first_look(NOW) == NOW + timedelta(minutes=30)
    assert next_look(a_funding(), NOW) - first_look(NOW) == SECOND, "strictly less than half is left then"


def test_a_hold_that_was_filled_up_is_looked_at_half_an_hour_later() -> None:
    funding = a_funding(held_nano=Nano(HALF - 8), available_nano=Nano(10 * HOUR_COST))
    decision = decide(funding)
    assert isinstance(decision, Renew)
    renewed = replace(funding, held_nano=Nano(funding.held_nano + decision.more_nano))
    assert next_look(renewed, NOW) == NOW + RENEW_BELOW + SECOND


def test_a_hold_that_cannot_be_renewed_is_looked_at_again_and_again() -> None:
    for left in (HALF - 1, LAST, 0, -HOUR_COST):
        assert next_look(a_funding(held_nano=Nano(left)), NOW) == NOW + LOOK_AGAIN_AFTER


def test_what_costs_nothing_is_looked_at_once_an_hour() -> None:
    assert next_look(a_funding(nano_per_unit_hour=Nano(0)), NOW) == NOW + HOLD


@given(
    price=PRICES,
    gpus=st.sampled_from([1, 2, 8]),
    held_seconds=st.integers(0, 7_200),
    unposted_seconds=st.integers(0, 3_600),
)
def test_nobody_looks_before_there_is_something_to_decide_nor_later_than_a_turn_after(
    price: Nano, gpus: int, held_seconds: int, unposted_seconds: int
) -> None:
    funding = a_funding(
        nano_per_unit_hour=price,
        units=gpus,
        held_nano=accrued(price, gpus * held_seconds),
        unposted_nano=accrued(price, gpus * unposted_seconds),
    )
    seconds = (next_look(funding, NOW) - NOW) // SECOND
    if LOOK_AGAIN_AFTER < seconds * SECOND < HOLD:
        # Sums are rounded to a whole nano-dollar, and a nano of a tiny price lasts for seconds.
        slack = 1 + 2 * 3_600 // (price * gpus)
        assert decide(later(funding, max(0, seconds - 1 - slack))) == Keep()
        assert decide(later(funding, seconds + slack)) != Keep()


def _life(
    price: Nano, gpus: int, balance: int, every: timedelta, post_every: timedelta
) -> tuple[int, timedelta, bool]:
    """Run one lease until it ends: what was used in all, how long it ran after its warning, whether it was warned.

    Its hold is looked at `every` so often, if it is due.
    """
    hold = accrued(price, gpus * 3_600)
    available, held, posted = balance - hold, int(hold), 0
    warned_at: timedelta | None = None
    now = next_post = timedelta(0)
    due_at = first_look(NOW)
    while True:
        now += every
        used = accrued(price, gpus * int(now.total_seconds()))
        if now >= next_post + post_every:
            next_post = now
            # A posted charge comes out of the hold, and a hold that is used up keeps nothing back.
            amount = used - posted
            out_of_hold = min(held, amount)
            held, posted, available = held - out_of_hold, used, available - (amount - out_of_hold)
        if NOW + now < due_at:
            continue
        funding = Funding(
            price, gpus, Nano(held), Nano(used - posted), Nano(available), warned_at is not None
        )
        match decide(funding):
            case Renew(more_nano=more):
                held, available, warned_at = held + more, available - more, None
                funding = replace(funding, held_nano=Nano(held))
            case Warn():
                warned_at = now
            case End():
                return used, now - (warned_at or now), warned_at is not None
            case Keep():
                pass
        due_at = next_look(funding, NOW + now)


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
    assert after_warning >= RENEW_BELOW - END_BELOW - 2 * max(every, LOOK_AGAIN_AFTER)


STOP_AT = int(TIMES.below.total_seconds()) * 8
UNTIL_OFF = int(STOP_TAKES.total_seconds()) * 8
CHEAP = Nano(36)
"""The price of a stopped unit for an hour: eight of them cost eight nano in 100 s."""


def a_stoppable(left: int, **other: object) -> Funding:
    return a_funding(held_nano=Nano(left), warned=True, stopped_nano_per_unit_hour=CHEAP, **other)


def a_kept(left: int, kept_for: timedelta = timedelta(hours=1), **other: object) -> Funding:
    """Its machine is stopped for lack of money."""
    price, on = CHEAP, Nano(3_600)
    return a_funding(
        held_nano=Nano(left),
        warned=True,
        nano_per_unit_hour=price,
        on_nano_per_unit_hour=on,
        kept_for=kept_for,
        **other,
    )


def test_a_machine_is_stopped_when_its_last_twenty_minutes_begin_if_that_costs_less() -> None:
    assert decide(a_stoppable(STOP_AT)) == Keep()
    stop = decide(a_stoppable(STOP_AT - 1))
    assert isinstance(stop, Stop)
    assert isinstance(decide(a_funding(held_nano=Nano(STOP_AT - 1))), Warn), "it cannot be stopped"


def test_a_stop_sets_aside_what_the_data_costs_as_long_as_there_is_money_for_it() -> None:
    stop = decide(a_stoppable(STOP_AT - 1, available_nano=Nano(500)))
    assert isinstance(stop, Stop)
    assert stop.more_nano == 500
    assert stop.kept_for.total_seconds() // 100 == (STOP_AT - 1 - UNTIL_OFF + 500) // 8
    rich = a_stoppable(STOP_AT - 1, available_nano=Nano(HOUR_COST - STOP_AT))
    stop = decide(replace(rich, stopped_nano_per_unit_hour=Nano(1)))
    assert isinstance(stop, Stop)
    assert stop.kept_for == TIMES.data_kept
    assert stop.more_nano == 0, "what is left suffices"


def test_the_money_of_a_suspended_organization_is_not_set_aside_for_its_data() -> None:
    stop = decide(a_stoppable(STOP_AT - 1, available_nano=Nano(HOUR_COST), spends=False))
    assert isinstance(stop, Stop)
    assert stop.more_nano == 0


def test_a_machine_whose_data_could_be_kept_for_minutes_only_runs_on_and_ends() -> None:
    seconds = int(DATA_KEPT_MIN.total_seconds())
    dear = Nano((STOP_AT - 1 - UNTIL_OFF) * 3_600 // (8 * seconds) + 2)
    assert decide(replace(a_stoppable(STOP_AT - 1), stopped_nano_per_unit_hour=dear)) == Keep()
    assert isinstance(decide(replace(a_stoppable(LAST - 1), stopped_nano_per_unit_hour=dear)), End)


def test_kept_data_is_deleted_when_the_stated_time_is_over_and_not_before() -> None:
    assert decide(a_kept(1_000, timedelta(seconds=1))) == Keep()
    assert isinstance(decide(a_kept(1_000, timedelta())), End)
    assert isinstance(decide(a_kept(0)), End), "nothing is left that pays for it"


def test_a_machine_can_be_started_again_once_an_hour_of_it_can_be_paid() -> None:
    assert decide(a_kept(1_000, available_nano=Nano(HOUR_COST - 1_000))) == Resume()
    assert decide(a_kept(1_000, available_nano=Nano(HOUR_COST - 1_001))) == Keep()
    assert decide(a_kept(1_000, available_nano=Nano(HOUR_COST), spends=False)) == Keep()


def test_kept_data_is_looked_at_when_its_time_is_over() -> None:
    now = datetime(2026, 11, 24, tzinfo=UTC)
    assert next_look(a_kept(HOUR_COST, timedelta(minutes=5)), now) == now + timedelta(minutes=5, seconds=1)


@given(st.integers(0, STOP_AT - 1), st.integers(-HOUR_COST, HOUR_COST), st.integers(0, 3_599))
def test_no_stop_sets_more_aside_than_is_available_or_promises_more_than_is_paid(
    left: int, available: int, stopped: int
) -> None:
    funding = replace(
        a_stoppable(left, available_nano=Nano(available)), stopped_nano_per_unit_hour=Nano(stopped)
    )
    decision = decide(funding)
    if isinstance(decision, Stop):
        assert 0 <= decision.more_nano <= max(0, available)
        seconds = int(decision.kept_for.total_seconds())
        assert accrued(Nano(stopped), 8 * seconds) <= left + decision.more_nano - UNTIL_OFF or stopped == 0
        assert DATA_KEPT_MIN <= decision.kept_for <= TIMES.data_kept
