"""What a lease costs whose machine is stopped and started: two prices, and every second charged once."""

import itertools
from datetime import datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import tariff as tariff_module
from control_plane.domain.auto_release import AutoRelease, refuses_start, release_at
from control_plane.domain.metering import HOUR, Meter, UsedUntil, due_intervals
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.rating import charge
from control_plane.domain.tariff import Tariff, billing_end, billing_start, stopped_price
from tests.support.clock import START
from tests.support.tariff import a_tariff

SECOND = timedelta(seconds=1)
MOMENTS = st.timedeltas(timedelta(0), timedelta(hours=9)).map(lambda since: START + since)
PRICE, STOPPED = Nano(7_200), Nano(3_600)
"""Two nano-dollars a second while it is on, and one while it is stopped."""


@st.composite
def tariffs(draw: st.DrawFn) -> Tariff:
    price = draw(st.integers(1, 50 * NANO_PER_USD))
    return a_tariff(
        draw(MOMENTS),
        draw(st.integers(1, 8)),
        Nano(price),
        stopped=Nano(draw(st.integers(0, price))),
        switched_at=tuple(sorted(draw(st.lists(MOMENTS, max_size=5)))),
        paused_at=tuple(sorted(draw(st.lists(MOMENTS, max_size=5)))),
    )


def cost(tariff: Tariff, until: datetime) -> int:
    """The cost by fractions, of each part between two moments at which anything changes."""
    start = billing_start(tariff.ready_at)
    end = max(until.replace(microsecond=0), start)
    switches = [at.replace(microsecond=0) for at in tariff.switched_at]
    pauses = pauses_of(tariff)
    seconds = [0, 0]
    moments = sorted({start, end, *(at for at in (*switches, *pauses) if start < at < end)})
    for since, at in itertools.pairwise(moments):
        if sum(pause <= since for pause in pauses) % 2 == 0:
            seconds[sum(switch <= since for switch in switches) % 2] += (at - since) // SECOND
    prices = (tariff.nano_per_unit_hour, tariff.stopped_nano_per_unit_hour)
    return sum(
        round(Fraction(n * price * tariff.units, 3_600)) for n, price in zip(seconds, prices, strict=True)
    )


def pauses_of(tariff: Tariff) -> list[datetime]:
    """The whole seconds in which the bill was paused and from which on it was resumed, in turn."""
    pauses: list[datetime] = []
    for number, at in enumerate(tariff.paused_at):
        whole = billing_start(at) if number % 2 else at.replace(microsecond=0)
        pauses.append(max(whole, *pauses[-1:], billing_start(tariff.ready_at)))
    return pauses


def paused_seconds(tariff: Tariff, until: datetime) -> int:
    moments = [min(at, until.replace(microsecond=0)) for at in (*pauses_of(tariff), until)]
    pairs = zip(moments[::2], moments[1::2], strict=False)
    return sum(max(timedelta(), resumed - paused) // SECOND for paused, resumed in pairs)


@given(tariffs(), st.lists(MOMENTS, max_size=6), MOMENTS)
def test_the_charges_add_up_to_the_cost_however_often_the_meter_wakes(
    tariff: Tariff, wakes: list[datetime], ended_at: datetime
) -> None:
    ended_at = max(ended_at, tariff.ready_at)
    meter, charged, seconds = Meter(tariff, None, 0), 0, 0
    for at, ended in (*((at, False) for at in sorted(wakes) if at <= ended_at), (ended_at, True)):
        for interval in due_intervals(meter, UsedUntil(at, at, ended)):
            price = tariff.price(stopped=interval.stopped)
            charged += charge(price, interval.unit_seconds_before, interval.unit_seconds)
            seconds += interval.unit_seconds
            meter = Meter(tariff, interval.ended_at, interval.number)
    assert charged == tariff.cost_until(ended_at) == cost(tariff, ended_at)
    billed = ended_at.replace(microsecond=0) - billing_start(tariff.ready_at)
    assert seconds == max(0, billed // SECOND - paused_seconds(tariff, ended_at)) * tariff.units


@given(tariffs(), st.integers(0, 500 * NANO_PER_USD).map(Nano))
def test_money_lasts_to_the_second_whatever_was_stopped_meanwhile(tariff: Tariff, amount: Nano) -> None:
    until = tariff.funded_until(amount)
    if until is None:
        last = max((billing_start(tariff.ready_at), *tariff.cuts))
        assert tariff.is_paused(last) or tariff.price(stopped=tariff.is_stopped(last)) == 0
        assert tariff.cost_until(last + 1_000 * HOUR) <= amount
        return
    assert tariff.cost_until(until) <= amount
    if not tariff.is_paused(until) and tariff.price(stopped=tariff.is_stopped(until)) * tariff.units >= 3_600:
        assert tariff.cost_until(until + SECOND) > amount


def test_an_hour_is_cut_where_the_price_changes_and_nowhere_without_a_second_between() -> None:
    stop, start = START + timedelta(minutes=10, milliseconds=900), START + timedelta(minutes=25)
    tariff = a_tariff(START, 8, PRICE, stopped=STOPPED, switched_at=(stop, start, start))
    made = list(due_intervals(Meter(tariff, None, 0), UsedUntil(START + HOUR, START + HOUR, True)))
    assert [(each.stopped, each.unit_seconds // 8, each.unit_seconds_before // 8) for each in made] == [
        (False, 600, 0),
        (True, 900, 0),
        (True, 2_100, 900),
    ]
    assert tariff.cost_until(START + HOUR) == 8 * (600 * 2 + 3_000)


def test_a_paused_bill_costs_nothing_from_its_second_to_the_first_full_one_after_it_is_resumed() -> None:
    paused = START + timedelta(minutes=10, milliseconds=900)
    resumed = START + timedelta(hours=3, milliseconds=1)
    tariff = a_tariff(START, 8, PRICE, stopped=STOPPED, paused_at=(paused, resumed))
    end = START + timedelta(hours=3, minutes=5)
    made = list(due_intervals(Meter(tariff, None, 0), UsedUntil(end, end, True)))
    assert [(each.number, each.started_at - START, each.unit_seconds // 8) for each in made] == [
        (1, timedelta(), 600),
        (2, timedelta(hours=3, seconds=1), 299),
    ]
    assert made[-1].unit_seconds_before == 8 * 600
    assert tariff.cost_until(resumed) == tariff.cost_until(paused) == 8 * 600 * 2
    assert a_tariff(START, paused_at=(paused,)).funded_until(Nano(10_000)) is None


def test_a_limit_of_the_cost_is_reached_later_when_the_machine_is_stopped() -> None:
    limit = AutoRelease(spend_nano=Nano(7_200))
    for switched, at in (
        ((), START + HOUR),
        ((START + HOUR / 2,), START + 3 * HOUR / 2),
        ((START + HOUR / 2, START + HOUR), START + 5 * HOUR / 4),
    ):
        assert release_at(limit, a_tariff(START, 1, PRICE, stopped=STOPPED, switched_at=switched)) == at


def test_a_stopped_machine_costs_no_less_than_it_costs_us_and_no_more_than_one_that_is_on() -> None:
    for stopped, costs_us, price in (
        (100, 0, 100),
        (100, 8 * 150, 150),
        (100, 8 * 150 + 1, 151),
        (100, 9_999, 500),
    ):
        assert stopped_price(Nano(500), Nano(stopped), Nano(costs_us), 8) == price


def test_thousands_of_stops_and_starts_are_looked_at_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A customer who stops and starts a machine for months must not hold up the meter of everybody."""
    stops, looked = 2_000, itertools.count()

    def counted(ready_at: datetime, at: datetime) -> datetime:
        next(looked)
        return billing_end(ready_at, at)

    monkeypatch.setattr(tariff_module, "billing_end", counted)
    moments = tuple(START + number * 60 * SECOND for number in range(1, stops + 1))
    tariff = a_tariff(START, 8, PRICE, stopped=STOPPED, switched_at=moments)
    until = moments[-1] + HOUR
    intervals = list(due_intervals(Meter(tariff, None, 0), UsedUntil(until, until, ended=True)))
    charges = [
        charge(tariff.price(stopped=each.stopped), each.unit_seconds_before, each.unit_seconds)
        for each in intervals
    ]
    assert sum(charges) == tariff.cost_until(until) == cost(tariff, until)
    assert tariff.funded_until(tariff.cost_until(until)) == until
    assert next(looked) < 3 * stops


def test_a_start_is_refused_when_the_limit_of_its_cost_would_end_the_lease_right_after_it() -> None:
    stopped_at, now = START + HOUR, START + 2 * HOUR
    tariff = a_tariff(START, price=PRICE, stopped=STOPPED, switched_at=(stopped_at,))
    spent = tariff.cost_until(now)
    for left_seconds, within in ((1, "within 1 min"), (13 * 60 + 1, "within 14 min"), (15 * 60, None)):
        limits = AutoRelease(spend_nano=Nano(spent + left_seconds * 2))
        refused = refuses_start(limits, tariff, now)
        assert (refused is not None) is (within is not None), left_seconds
        assert refused is None or f"{within};" in refused.why
    soon = AutoRelease(after_seconds=2 * 3_600 + 60, spend_nano=Nano(spent + 3_600))
    assert refuses_start(soon, tariff, now) is None, "it ends in a minute whether it is started or not"
    assert refuses_start(AutoRelease(), tariff, now) is None
