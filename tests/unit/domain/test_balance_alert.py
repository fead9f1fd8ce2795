"""When a customer is warned of its balance and of its budget: once per crossing, whatever is replayed."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.balance_alert import (
    BUDGET_PERCENTS,
    LOW_HOURS,
    BalanceAlerts,
    Funds,
    Lacking,
    Noticed,
    notices,
    reached_percent,
    threshold,
)
from control_plane.domain.exhaustion import BalanceEvent, BalanceState, step
from control_plane.domain.money import NANO_PER_USD, NOTHING, Nano
from control_plane.domain.transitions import Moved

E, S = BalanceEvent, BalanceState
NOVEMBER, DECEMBER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)


def usd(amount: int) -> Nano:
    return Nano(amount * NANO_PER_USD)


RUNS = Funds(usd(100), usd(4), usd(4), NOVEMBER, usd(10))
IDLE = Funds(usd(100), NOTHING, NOTHING, NOVEMBER, usd(10))
BELOW_50 = BalanceAlerts(below_nano=usd(50))
BUDGET = BalanceAlerts(below_nano=NOTHING, month_budget_nano=usd(200))


def after(alerts: BalanceAlerts, funds: Funds, noticed: Noticed) -> tuple[list[BalanceEvent], Noticed]:
    """What is told now, and what is known of the organization then."""
    state, events = noticed.state, []
    for notice in notices(alerts, funds, noticed):
        moved = step(state, notice.event)
        assert isinstance(moved, Moved)
        state = moved.after
        events.append(notice.event)
    return events, Noticed(state, funds.month, reached_percent(alerts, funds))


def told(alerts: BalanceAlerts, *course: Funds) -> Iterator[list[BalanceEvent]]:
    """What is told at each look at the course of an organization's money."""
    noticed = Noticed()
    for funds in course:
        events, noticed = after(alerts, funds, noticed)
        yield events


def test_unless_it_is_chosen_the_threshold_is_what_runs_costs_in_a_day() -> None:
    assert threshold(BalanceAlerts(), RUNS) == usd(4 * LOW_HOURS)
    assert threshold(BalanceAlerts(), IDLE) == 0
    assert threshold(BELOW_50, RUNS) == usd(50)


def test_a_fall_below_the_threshold_is_told_once_and_a_top_up_arms_the_warning_again() -> None:
    low = replace(RUNS, balance_nano=Nano(usd(50) - 1))
    at_the_threshold = replace(RUNS, balance_nano=usd(50))
    course = told(BELOW_50, RUNS, at_the_threshold, low, low, at_the_threshold, RUNS, low)
    assert list(course) == [[], [], [E.FELL_LOW], [], [E.RECOVERED], [], [E.FELL_LOW]]


def test_releasing_leases_takes_the_warning_back_where_the_threshold_follows_their_price() -> None:
    low = replace(RUNS, balance_nano=usd(20))
    assert list(told(BalanceAlerts(), low, replace(IDLE, balance_nano=usd(20)))) == [
        [E.FELL_LOW],
        [E.RECOVERED],
    ]


def test_a_threshold_of_zero_never_warns() -> None:
    assert list(told(replace(BELOW_50, below_nano=NOTHING), replace(RUNS, balance_nano=NOTHING))) == [[]]


def test_a_warning_says_the_balance_the_threshold_and_how_long_the_money_lasts() -> None:
    (notice,) = notices(BELOW_50, replace(RUNS, balance_nano=Nano(usd(49) + 1)), Noticed())
    assert notice.limit_nano == usd(50)
    assert notice.why == (
        "The balance is 49.00 USD, below 50.00 USD, and pays for 12 h at 4.00 USD per hour; top up."
    )


def test_each_share_of_the_budget_is_told_once_and_again_in_the_next_month() -> None:
    course = told(
        BUDGET,
        *(replace(RUNS, month_nano=usd(spent)) for spent in (99, 100, 159, 160, 199, 200, 400)),
        replace(RUNS, month=DECEMBER, month_nano=usd(100)),
    )
    reached = [E.BUDGET_REACHED]
    assert list(course) == [[], reached, [], reached, [], reached, [], reached]


def test_shares_that_are_reached_together_are_told_as_the_highest() -> None:
    (notice,) = notices(BUDGET, replace(RUNS, month_nano=usd(170)), Noticed())
    assert notice.limit_nano == usd(160)
    assert (
        notice.why
        == "170.00 USD were charged for November 2026: 80 % of the budget of 200.00 USD are reached."
    )


def test_a_higher_budget_makes_its_shares_unreached_again() -> None:
    spent = replace(RUNS, month_nano=usd(100))
    _, noticed = after(BUDGET, spent, Noticed())
    higher = replace(BUDGET, month_budget_nano=usd(400))
    events, noticed = after(higher, spent, noticed)
    assert (events, noticed.budget_percent) == ([], 0)
    assert after(higher, replace(spent, month_nano=usd(200)), noticed)[0] == [E.BUDGET_REACHED]


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(1, 300), st.integers(0, 300))
def test_whatever_the_balance_does_looking_twice_tells_nothing_twice(
    balances: list[int], budget: int, below: int
) -> None:
    alerts = BalanceAlerts(usd(below), usd(budget), BUDGET_PERCENTS)
    noticed = Noticed()
    for balance in balances:
        funds = replace(RUNS, balance_nano=usd(balance), month_nano=usd(300 - balance))
        _, noticed = after(alerts, funds, noticed)
        assert (noticed.state is S.LOW) == (balance < below)
        assert after(alerts, funds, noticed) == ([], noticed)


SHORT = Lacking(short_leases=2, short_nano=usd(8))
KEPT = replace(SHORT, kept_leases=1, kept_until=NOVEMBER + timedelta(days=7))
POOR = replace(RUNS, balance_nano=usd(4), lacking=SHORT)


def test_money_runs_out_step_by_step_and_each_step_is_told_once() -> None:
    kept = replace(POOR, lacking=KEPT)
    gone = replace(IDLE, balance_nano=NOTHING, lacking=Lacking(deleted_leases=1))
    course = told(BELOW_50, RUNS, replace(RUNS, balance_nano=usd(40)), POOR, POOR, kept, kept, gone, gone)
    assert list(course) == [
        [],
        [E.FELL_LOW],
        [E.RAN_OUT],
        [],
        [E.MACHINES_STOPPED],
        [],
        [E.DATA_DELETED],
        [],
    ]


def test_a_top_up_leads_back_up_from_every_state() -> None:
    for low in (POOR, replace(POOR, lacking=KEPT)):
        *_, first, last = told(BELOW_50, low, RUNS, RUNS)
        assert (first, last) == ([E.RELIEVED, E.RECOVERED], [])


def test_a_stop_says_until_when_data_is_kept_and_what_starts_again() -> None:
    (notice,) = notices(BELOW_50, replace(POOR, lacking=KEPT), Noticed(S.EXHAUSTED))
    assert notice.why == (
        "A machine was stopped for lack of money. The data is kept until 2026-11-08 00:00 UTC, and deleted after that."
        " Top up 8.00 USD, and start what you need: nothing starts by itself."
    )


def test_running_out_says_what_the_next_hour_costs_and_what_is_there() -> None:
    *_, notice = notices(BELOW_50, replace(POOR, held_nano=usd(3)), Noticed())
    assert notice.why.startswith("1.00 USD is available, and the next hour of 2 leases costs 8.00 USD.")
