"""Reference times from proofs of many: who can move them, and who cannot."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.proof.learning import AGREE_WITHIN, DEVICES_MIN, Lesson, Sample, Unlearnt, learn
from data_plane.proof.reference import TABLE, TimedPhase

MODEL = "h100-sxm-80gb"
HONEST = 2.2e12


def samples(
    provider: str,
    rate: float,
    devices: int = DEVICES_MIN,
    each: int = 3,
    driver: int = 570,
    phase: TimedPhase = "walk",
) -> list[Sample]:
    """`each` samples of every device, a little apart."""
    return [
        Sample(provider, f"{provider}-{device}", MODEL, driver, phase, rate * (1 + 0.002 * (device - 2)))
        for device in range(devices)
        for _ in range(each)
    ]


def lesson(*of: Iterable[Sample]) -> Lesson:
    (only,) = learn([sample for some in of for sample in some])
    return only


def test_two_unrelated_providers_that_agree_make_a_reference() -> None:
    one = lesson(samples("a", HONEST), samples("b", 0.97 * HONEST))
    assert one.rate == pytest.approx(HONEST)
    assert one.reason is None
    assert [standing.provider for standing in one.standings] == ["a", "b"]
    assert one.standings[0].spread == pytest.approx(0.002)


def test_one_provider_alone_is_not_believed_however_much_it_sends() -> None:
    one = lesson(samples("a", HONEST, devices=200, each=5))
    assert (one.rate, one.reason) == (None, Unlearnt.TOO_FEW_PROVIDERS)


def test_four_devices_are_too_few_to_speak_for_a_provider() -> None:
    few = samples("b", HONEST, devices=DEVICES_MIN - 1, each=50)
    assert lesson(samples("a", HONEST), few).reason is Unlearnt.TOO_FEW_PROVIDERS


def test_a_thousand_poisoned_samples_of_one_provider_move_nothing() -> None:
    honest = [*samples("a", HONEST), *samples("b", HONEST)]
    before = lesson(honest)
    for poison in (0.01, 0.5, 0.8):
        slow = samples("c", poison * HONEST, devices=100, each=10)
        assert lesson(honest, slow).rate == before.rate
    impossible = samples("c", 50 * HONEST, devices=100, each=10)
    assert lesson(honest, impossible).rate == before.rate
    assert lesson(honest, impossible).refused == 1000


def test_many_samples_of_one_device_count_as_one_device() -> None:
    outlier = [Sample("a", "a-0", MODEL, 570, "walk", 0.1 * HONEST)] * 1000
    one = lesson(samples("a", HONEST), outlier, samples("b", HONEST))
    assert one.rate == pytest.approx(HONEST, rel=0.005)


def test_a_slow_provider_does_not_widen_the_slack() -> None:
    one = lesson(samples("a", HONEST), samples("b", 0.92 * HONEST))
    assert one.rate == pytest.approx(HONEST)


def test_providers_that_disagree_make_no_reference() -> None:
    one = lesson(samples("a", HONEST), samples("b", 0.8 * HONEST))
    assert (one.rate, one.reason) == (None, Unlearnt.PROVIDERS_DISAGREE)


def test_two_slow_ones_cannot_outvote_one_that_is_fast() -> None:
    one = lesson(samples("a", HONEST), samples("b", 0.6 * HONEST), samples("c", 0.6 * HONEST))
    assert one.reason is Unlearnt.PROVIDERS_DISAGREE


def test_two_colluding_providers_alone_are_believed_which_is_a_stated_limit() -> None:
    one = lesson(samples("a", 0.6 * HONEST), samples("b", 0.6 * HONEST))
    assert one.rate == pytest.approx(0.6 * HONEST)


def test_what_physics_forbids_is_refused() -> None:
    peak = TABLE[MODEL].bandwidth
    one = lesson(samples("a", 1.2 * peak), samples("b", 1.2 * peak))
    assert (one.rate, one.reason, one.refused) == (None, Unlearnt.TOO_FEW_PROVIDERS, 30)
    assert lesson(samples("a", 0.0), samples("b", -1.0)).refused == 30


def test_drivers_and_phases_are_learnt_apart() -> None:
    found = learn(
        [
            *samples("a", HONEST), *samples("b", HONEST),
            *samples("a", 2e10, phase="fill"), *samples("b", 2e10, phase="fill"),
            *samples("a", HONEST, driver=580),
            Sample("a", "a-0", "no-such-model", 570, "walk", 1.0),
        ]
    )  # fmt: skip
    said = [(one.driver_major, one.phase, one.rate is not None) for one in found]
    assert said == [(570, "fill", True), (570, "walk", True), (580, "walk", False)]


@given(st.lists(st.floats(0.2, 1.3), min_size=1, max_size=5), st.integers(1, 40))
def test_whatever_a_third_provider_sends_the_reference_stays_or_goes(shares: list[float], each: int) -> None:
    """It never becomes slower than what two honest ones show, nor faster than a tenth above it."""
    honest = [*samples("a", HONEST), *samples("b", HONEST)]
    poison = [
        Sample("c", f"c-{device}", MODEL, 570, "walk", share * HONEST)
        for device, share in enumerate(shares)
        for _ in range(each)
    ]
    rate = lesson(honest, poison).rate
    assert rate is None or HONEST * 0.999 <= rate <= HONEST * (1 + AGREE_WITHIN) * 1.001
