"""Detectors: what samples show, when a condition begins and is over, and that noise and silence change nothing."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import throughput
from control_plane.domain.detection import (
    Holds,
    Hysteresis,
    Point,
    Watch,
    judged,
    read_by,
    symptom_of,
)
from control_plane.domain.enforcement import (
    OF_SAMPLES,
    Absent,
    Basis,
    Detector,
    Present,
    Silent,
    Symptom,
    Unclear,
)
from control_plane.domain.reading import GpuReading, HostReading, PressureReading, Reading
from control_plane.domain.throughput import Cause, HoursOfBatch, Sampled, Usual, cause_of
from tests.support.enforcement import AT, EVERY, RULES, idles, sampled, serves

HYSTERESIS = Hysteresis(enter_seconds=60, leave_seconds=180)
ENTER, LEAVE = 100, 80


def says(
    detector: Detector,
    samples: Sequence[Sampled],
    *,
    is_open: bool = False,
    usual: Usual | None = None,
    idle_stop: timedelta | None = None,
) -> Symptom:
    watch = Watch(samples, usual or Usual({}), idle_stop)
    return symptom_of(detector, watch, RULES, AT, since=AT - timedelta(hours=1) if is_open else None)


def points(values: Sequence[int]) -> list[Point]:
    first = AT - EVERY * (len(values) - 1)
    return [
        Point(first + EVERY * number, value, enters=value >= ENTER, leaves=value < LEAVE)
        for number, value in enumerate(values)
    ]


def switches(values: Sequence[int]) -> list[int]:
    """After which samples a condition begins and is over, if each is judged as it comes."""
    series, is_open, found = points(values), False, []
    for number in range(1, len(series) + 1):
        now = series[number - 1].at
        state = judged(series[:number], is_open=is_open, hysteresis=HYSTERESIS, rule=RULES.samples, now=now)
        if isinstance(state, Holds if not is_open else Absent):
            is_open = not is_open
            found.append(number)
    return found


def test_memory_that_is_full_is_pressure_only_if_the_cache_is_full_or_requests_lose_theirs() -> None:
    full = sampled([serves(9_600, gpu_bp=9_900)] * 6)
    assert isinstance(says(Detector.MEMORY_PRESSURE, full), Present)
    engine_takes_all = sampled([serves(3_000, gpu_bp=9_900)] * 6)
    assert isinstance(says(Detector.MEMORY_PRESSURE, engine_takes_all), Unclear)
    preempts = sampled([serves(3_000, gpu_bp=9_900, preemptions=number) for number in range(8)])
    assert isinstance(says(Detector.MEMORY_PRESSURE, preempts), Present)


def test_what_slows_a_machine_is_what_half_of_its_slow_samples_show() -> None:
    def gpus(**fields: Any) -> Reading:
        return replace(serves(), gpus=(GpuReading(0, utilisation_percent=90, **fields),))

    def cause(*readings: Reading) -> Cause | None:
        return cause_of(sampled(readings), [True] * len(readings), RULES.throughput)

    for word, reading in {
        "heat": gpus(throttle_reasons=1 << 5),
        "heat, as the hardware says": gpus(throttle_reasons=1 << 6),
        "the power supply": gpus(throttle_reasons=1 << 7),
        "half of its lanes": gpus(pcie_width=8, pcie_width_max=16),
        "memory errors": gpus(ecc_uncorrected_volatile=1),
    }.items():
        assert cause(reading) is Cause.MACHINE, word
    at_its_limit = gpus(throttle_reasons=1 << 2, pcie_width=16, pcie_width_max=16)
    idle_link = replace(
        serves(), gpus=(GpuReading(0, utilisation_percent=3, pcie_width=1, pcie_width_max=16),)
    )
    assert cause(at_its_limit, idle_link) is Cause.UNKNOWN
    hot = gpus(throttle_reasons=1 << 5)
    assert cause(hot, at_its_limit) is Cause.MACHINE
    assert cause(hot, at_its_limit, at_its_limit) is Cause.UNKNOWN
    (server,) = serves(9_400).servers
    waits = replace(serves(), servers=(replace(server, waiting=3),))
    assert cause(waits) is Cause.CROWD
    assert cause(replace(serves(), servers=(server,))) is Cause.UNKNOWN, (
        "a full cache alone is what it is for"
    )
    assert cause(*(serves(preemptions=number) for number in range(3))) is Cause.CROWD
    assert cause(hot, waits) is Cause.MACHINE, "what is ours to mend comes first"
    assert cause_of(sampled([hot]), [False], RULES.throughput) is None


def test_requests_lose_their_cache_in_one_pod_whatever_another_pod_at_the_same_port_counts() -> None:
    def pods(first: int, second: int) -> Reading:
        reading = serves(3_000, gpu_bp=9_900)
        (server,) = reading.servers
        return replace(
            reading,
            servers=(
                replace(server, pod_ip="10.42.3.7", preemptions=first),
                replace(server, pod_ip="10.42.3.9", preemptions=second),
            ),
        )

    assert isinstance(says(Detector.MEMORY_PRESSURE, sampled([pods(9, 5)] * 6)), Unclear)
    found = says(Detector.MEMORY_PRESSURE, sampled([pods(9 + number, 5) for number in range(8)]))
    assert isinstance(found, Present)


def test_a_host_whose_tasks_all_wait_for_memory_is_under_pressure() -> None:
    stalled = Reading(host=HostReading(pressure=PressureReading(memory_full_bp=2_500)))
    found = says(Detector.MEMORY_PRESSURE, sampled([stalled] * 6))
    assert isinstance(found, Present)
    assert "all tasks wait for host memory 25 % of the time" in found.why


def test_a_cache_that_will_be_full_in_ten_minutes_is_found_before_it_is() -> None:
    growing = sampled([serves(2_000 + 150 * number) for number in range(30)])
    found = says(Detector.KV_CACHE_GROWTH, growing)
    assert isinstance(found, Present)
    assert found.why == "63 % of the KV cache is in use, and 100 % will be in 10 min"
    steady = sampled([serves(8_000 + 10 * (number % 3)) for number in range(30)])
    assert isinstance(says(Detector.KV_CACHE_GROWTH, steady), Unclear)


def test_growth_is_only_told_from_enough_samples() -> None:
    few = RULES.kv.samples_min + 2
    assert isinstance(
        says(Detector.KV_CACHE_GROWTH, sampled([serves(2_000 + 900 * n) for n in range(few)])), Unclear
    )


def test_throughput_is_held_against_what_is_usual_with_about_as_many_requests() -> None:
    usual = Usual({throughput.batch_of(10): 100_000})
    slow = sampled([serves(tokens=700)] * 62)
    found = says(Detector.THROUGHPUT_DEGRADATION, slow, usual=usual)
    assert isinstance(found, Present)
    assert found.why == "70 % of the usual tokens per second and request are generated"
    other_batch = sampled([serves(tokens=700, running=40)] * 62)
    assert not isinstance(says(Detector.THROUGHPUT_DEGRADATION, other_batch, usual=usual), Present)
    assert not isinstance(says(Detector.THROUGHPUT_DEGRADATION, slow), Present)  # Nothing is usual yet.


def test_what_is_usual_is_the_median_of_hours_and_needs_several() -> None:
    hours = [HoursOfBatch(4, 6, median=100), HoursOfBatch(2, 5, median=7)]
    assert throughput.usual_of(hours, RULES.throughput) == Usual({4: 100})
    assert throughput.hour_of(sampled([serves()] * 19), RULES.throughput) == {}
    assert throughput.hour_of(sampled([serves()] * 21), RULES.throughput) == {4: 100_000}


def test_a_machine_is_idle_when_no_gpu_works_and_no_request_runs() -> None:
    assert isinstance(says(Detector.IDLE, sampled([idles()] * 122)), Present)
    assert not isinstance(says(Detector.IDLE, sampled([idles()] * 60)), Present)
    assert not isinstance(says(Detector.IDLE, sampled([serves()] * 122)), Present)
    unreadable = Reading(failure="nvml_hangs")
    assert not isinstance(says(Detector.IDLE, sampled([unreadable] * 122)), Present)
    half_known = Reading(gpus=(GpuReading(0, utilisation_percent=0), GpuReading(1)))
    assert not isinstance(says(Detector.IDLE, sampled([half_known] * 122)), Present)


def test_an_idle_machine_is_only_to_be_stopped_if_its_customer_wants_it() -> None:
    samples = sampled([idles()] * 122)
    alone = says(Detector.IDLE, samples)
    wished = says(Detector.IDLE, samples, idle_stop=timedelta(hours=2))
    assert isinstance(alone, Present)
    assert isinstance(wished, Present)
    assert (alone.basis, alone.until) == (Basis.CLAIM, None)
    assert wished.basis is Basis.CONSENT
    assert wished.until == wished.since + timedelta(hours=2)


def test_silence_begins_nothing_and_ends_what_only_samples_show() -> None:
    long_ago = sampled([serves(9_600, gpu_bp=9_900)] * 40, until=AT - timedelta(minutes=6))
    assert isinstance(says(Detector.MEMORY_PRESSURE, long_ago), Unclear)
    assert isinstance(says(Detector.MEMORY_PRESSURE, long_ago, is_open=True), Silent)
    assert isinstance(says(Detector.MEMORY_PRESSURE, []), Unclear)


def test_a_gap_in_the_samples_begins_the_time_anew() -> None:
    before = sampled([serves(9_600, gpu_bp=9_900)] * 6, until=AT - timedelta(seconds=100))
    after = sampled([serves(9_600, gpu_bp=9_900)] * 3)
    assert isinstance(says(Detector.MEMORY_PRESSURE, before + after), Unclear)


def test_only_suspicious_samples_have_a_window_read() -> None:
    (calm,) = sampled([serves(1_000)])
    assert read_by(calm, (), Usual({}), RULES, AT) == {}
    (idle,) = sampled([idles()])
    assert set(read_by(idle, (), Usual({}), RULES, AT)) == {Detector.IDLE}
    assert set(read_by(None, tuple(Detector), Usual({}), RULES, AT)) == OF_SAMPLES
    (old,) = sampled([idles()], until=AT - timedelta(minutes=2))
    assert read_by(old, (), Usual({}), RULES, AT) == {}


@given(st.lists(st.integers(LEAVE, ENTER + 200), max_size=200))
def test_a_condition_that_never_falls_below_the_lower_level_begins_once_at_most(values: list[int]) -> None:
    assert len(switches(values)) <= 1


@given(st.lists(st.integers(0, ENTER - 1), max_size=200))
def test_a_condition_that_never_reaches_the_upper_level_never_begins(values: list[int]) -> None:
    assert switches(values) == []


@given(st.lists(st.integers(0, 200), max_size=300))
def test_whatever_the_values_are_two_switches_are_as_far_apart_as_the_times_say(values: list[int]) -> None:
    found = switches(values)
    for number, (one, other) in enumerate(pairwise(found)):
        seconds = HYSTERESIS.leave_seconds if number % 2 == 0 else HYSTERESIS.enter_seconds
        assert (other - one) * EVERY.total_seconds() >= seconds


@given(st.lists(st.integers(0, 9_999), min_size=8, max_size=60), st.randoms(use_true_random=False))
def test_a_detector_says_the_same_whenever_it_is_asked(values: list[int], chance: object) -> None:
    samples = sampled([serves(value) for value in values])
    assert says(Detector.KV_CACHE_GROWTH, samples) == says(Detector.KV_CACHE_GROWTH, list(samples))


@pytest.mark.parametrize("noise", [0, 50, 99])
def test_noise_around_the_upper_level_does_not_flap(noise: int) -> None:
    around = [ENTER + (noise if number % 2 else -min(noise, ENTER - LEAVE)) for number in range(400)]
    assert len(switches([ENTER + 1] * 6 + around)) == 1
