"""The rules of the clock, played against a database whose clock drifts and is set, and a host whose clock is wrong."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.domain.clock import DIFFERENCE_MAX, DRIFT, Anchor, Reckoning, anchor, reckoned

START = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
MAX = DIFFERENCE_MAX.total_seconds()
ROUNDING = 1e-5
"""Times have microseconds, and a calculation rounds a few times."""


@dataclass
class Played:
    """A process, its host and its database. True time is what the stopwatch shows."""

    drift: float = 0.0
    """Seconds per second by which the database's clock runs faster than the stopwatch."""
    stopwatch: float = 1_000.0
    database_set: float = 0.0
    """Seconds by which the database's clock was set forward."""
    host_ahead: float = 0.0
    known: Reckoning | None = None
    told: list[datetime] = field(default_factory=list[datetime])

    def database(self) -> datetime:
        return START + timedelta(seconds=self.stopwatch * (1 + self.drift) + self.database_set)

    def host(self) -> datetime:
        return START + timedelta(seconds=self.stopwatch + self.host_ahead)

    def read(self, there: float, back: float) -> Anchor:
        """One reading; the two ways of its round trip take these seconds."""
        asked = self.stopwatch
        self.stopwatch += there
        at = self.database()
        self.stopwatch += back
        found = anchor(asked, self.stopwatch, at)
        self.known = reckoned(self.known, found, host=self.host(), stopwatch=self.stopwatch)
        return found

    def now(self) -> datetime:
        assert self.known is not None
        self.told.append(self.known.now(self.stopwatch, self.told[-1] if self.told else None))
        return self.told[-1]

    def refusal(self) -> str | None:
        assert self.known is not None
        return self.known.refusal(self.host(), self.now(), self.stopwatch)

    def off(self) -> float:
        """Seconds by which the process is ahead of the database."""
        return (self.now() - self.database()).total_seconds()


trips = st.floats(0, 3)
waits = st.floats(0, 60)
skews = st.floats(-4_000, 4_000)
drifts = st.floats(-DRIFT, DRIFT)


@given(st.lists(st.tuples(waits, trips, trips), min_size=1, max_size=12), drifts, skews)
def test_the_time_is_the_databases_within_the_error_whatever_the_host_shows_and_however_unequal_the_ways_are(
    readings: list[tuple[float, float, float]], drift: float, host_ahead: float
) -> None:
    process = Played(drift=drift, host_ahead=host_ahead)
    for wait, there, back in readings:
        process.read(there, back)
        process.stopwatch += wait
        assert process.known is not None
        error = process.known.work.error_at(process.stopwatch)
        # Held back after a reading that was less exact, it is ahead by no more than that one was wrong.
        behind_at_most = -error - ROUNDING
        assert behind_at_most <= process.off()
        assert process.known.work.time(process.stopwatch) <= process.database() + timedelta(
            seconds=error + ROUNDING
        )


@given(st.lists(st.tuples(waits, trips, trips, skews, skews), min_size=1, max_size=12), drifts)
def test_the_time_never_goes_back_however_the_clocks_are_set(
    readings: list[tuple[float, float, float, float, float]], drift: float
) -> None:
    process = Played(drift=drift)
    for wait, there, back, database_set, host_ahead in readings:
        process.database_set, process.host_ahead = database_set, host_ahead
        process.read(there, back)
        before = process.now()
        process.stopwatch += wait
        assert process.now() >= before


@given(st.lists(st.tuples(waits, trips, trips, skews, skews), min_size=1, max_size=12))
def test_a_process_that_may_work_has_the_databases_time_whatever_was_set(
    readings: list[tuple[float, float, float, float, float]],
) -> None:
    process = Played()
    for wait, there, back, database_set, host_ahead in readings:
        process.stopwatch += wait
        process.database_set, process.host_ahead = database_set, host_ahead
        process.read(there, back)
        if process.refusal() is None:
            assert process.known is not None
            error = process.known.database.error_at(process.stopwatch)
            assert abs(process.off()) <= MAX + 2 * error + ROUNDING


@given(skews, trips, trips, waits)
def test_a_host_is_refused_exactly_while_it_differs_by_more_than_the_bound_for_certain(
    ahead: float, there: float, back: float, wait: float
) -> None:
    process = Played(host_ahead=ahead)
    process.read(there, back)
    process.stopwatch += wait
    error = (there + back) / 2 + DRIFT * (wait + there + back)
    refusal = process.refusal()
    if abs(ahead) > MAX + 2 * error + ROUNDING:
        assert refusal is not None
        assert f"{'ahead of' if ahead > 0 else 'behind'} the database's" in refusal
    if abs(ahead) <= MAX:
        assert refusal is None
    process.host_ahead = 0.0
    assert process.refusal() is None, "it agrees again"


@settings(max_examples=30)
@given(st.sampled_from([-3_600.0, -6.0, 6.0, 3_600.0]), trips)
def test_a_database_whose_clock_is_set_is_not_followed_and_after_it_is_corrected_nothing_jumps(
    step: float, trip: float
) -> None:
    process = Played()
    process.read(0.01, 0.01)
    process.database_set = step
    process.stopwatch += 10
    process.read(0.01, 0.01)
    assert process.refusal() is not None
    true_time = START + timedelta(seconds=process.stopwatch)
    assert abs((process.now() - true_time).total_seconds()) < 0.1
    process.database_set = 0.0
    process.stopwatch += 10
    process.read(trip / 100, trip / 100)
    assert process.refusal() is None
    assert abs(process.off()) < 0.1


def test_a_database_and_hosts_that_are_set_back_together_are_refused_until_the_time_has_caught_up() -> None:
    process = Played()
    process.read(0.01, 0.01)
    held = process.now()
    process.database_set = process.host_ahead = -60.0
    process.stopwatch += 10
    process.read(0.01, 0.01)
    assert process.now() >= held
    assert "Restart the process" in (process.refusal() or "")
    process.stopwatch += 46
    assert process.refusal() is None, "within the bound again"
    assert process.off() < MAX


def test_of_two_readings_that_agree_the_one_with_the_shorter_round_trip_counts_until_it_has_aged() -> None:
    process = Played()
    sharp = process.read(0.001, 0.001)
    process.stopwatch += 5
    process.read(2, 0)
    assert process.known is not None
    assert process.known.work == sharp
    process.stopwatch += 2_000
    blunt = process.read(0.5, 0.5)
    assert process.known.work == blunt


def test_a_process_that_stood_still_takes_the_new_time_at_once() -> None:
    """A suspended machine's stopwatch stands still as well."""
    process = Played()
    process.read(0.01, 0.01)
    process.database_set = process.host_ahead = 3_600.0
    assert process.refusal() is not None, "the host's clock went on"
    process.read(0.01, 0.01)
    assert process.refusal() is None
    assert process.off() == pytest.approx(0, abs=0.05)
