"""Reference times from proofs of many: who can move them, and who cannot."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.proof.challenger.judgement import PEAK_MARGIN, Band, band
from data_plane.proof.challenger.learning import (
    AGREE_WITHIN,
    DEVICES_MIN,
    Lesson,
    Sample,
    Unlearnt,
    learn,
)
from data_plane.proof.challenger.reference import (
    EVERY_DRIVER,
    TABLE,
    Basis,
    Observed,
    Pace,
    References,
    TimedPhase,
)

MODEL = "h100-sxm-80gb"
HONEST = 2.2e12
WALK = 1.2 * HONEST
"""Bytes, of a walk that takes an honest card 1.2 s."""


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
    """Of all drivers together."""
    (only,) = [one for one in learn([sample for some in of for sample in some]) if not one.driver_major]
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
    one = lesson(samples("a", 0.7 * HONEST), samples("b", 0.7 * HONEST))
    assert one.rate == pytest.approx(0.7 * HONEST)


def test_nobody_makes_a_reference_that_allows_more_time_than_the_estimate() -> None:
    one = lesson(samples("a", 0.6 * HONEST), samples("b", 0.6 * HONEST))
    assert (one.rate, one.reason) == (None, Unlearnt.WIDER_THAN_ESTIMATED)


def test_what_physics_forbids_is_refused() -> None:
    peak = TABLE[MODEL].bandwidth
    one = lesson(samples("a", 1.2 * peak), samples("b", 1.2 * peak))
    assert (one.rate, one.reason, one.refused) == (None, Unlearnt.TOO_FEW_PROVIDERS, 30)
    assert lesson(samples("a", 0.0), samples("b", -1.0)).refused == 30


def test_phases_are_learnt_apart_and_drivers_together_and_by_branch() -> None:
    found = learn(
        [
            *samples("a", HONEST), *samples("b", HONEST, driver=580), *samples("c", HONEST, driver=580),
            *samples("a", 2e10, phase="fill"), *samples("b", 2e10, phase="fill"),
            Sample("a", "a-0", "no-such-model", 570, "walk", 1.0),
        ]
    )  # fmt: skip
    summary = [(one.driver_major, one.phase, one.rate is not None) for one in found]
    assert summary == [
        (EVERY_DRIVER, "fill", True),
        (570, "fill", True),
        (EVERY_DRIVER, "walk", True),
        (580, "walk", True),
    ]


@pytest.mark.parametrize(
    ("share", "rate"), [(0.95, None), (0.999, None), (1.0, HONEST), (1.05, 1.05 * HONEST), (1.2, None)]
)
def test_a_branch_of_the_driver_has_a_reference_of_its_own_only_where_it_is_a_little_faster(
    share: float, rate: float | None
) -> None:
    of_branch = cards("ab", share * HONEST, DEVICES_MIN, driver=590)
    [branch] = [one for one in learn([*MANY, *of_branch]) if one.driver_major == 590]
    assert (branch.rate, branch.reason) == (rate, None if rate else Unlearnt.BRANCH_APART)
    known = knowing(learn([*MANY, *of_branch]))
    assert known.times(MODEL, "590.1").walk.rate == (rate or HONEST)
    assert known.times(MODEL, "580.1").walk.rate == known.times(MODEL, "no number").walk.rate == HONEST
    assert allowed(known, 590).code(1.2) is None, "who poisons a branch refuses no honest machine on it"


def test_a_branch_that_nobody_vouches_for_has_the_reference_of_all() -> None:
    found = learn([*MANY, *cards("a", HONEST, 50, driver=590), *cards("b", HONEST, 4, driver=590)])
    assert [one.driver_major for one in found] == [EVERY_DRIVER, 580]


# What follows for a machine that names its driver.


def knowing(lessons: Iterable[Lesson], *measured: Observed) -> References:
    learnt = [
        Observed(one.model, one.driver_major, {one.phase: Pace(one.rate, Basis.LEARNT, "")})
        for one in lessons
        if one.rate is not None
    ]
    return References((*measured, *learnt))


def allowed(references: References, driver: int) -> Band:
    """For a walk that takes an honest card 1.2 s."""
    pace = references.times(MODEL, f"{driver}.1").walk
    return band(WALK, pace, TABLE[MODEL].peak("walk"), PEAK_MARGIN["walk"])


MEASURED = Observed(MODEL, 570, {"walk": Pace(HONEST, Basis.MEASURED, "ours")})


def cards(providers: str, rate: float, devices: int, driver: int) -> list[Sample]:
    """One sample of each, all as fast."""
    return [
        Sample(name, f"{name}-{driver}-{device}", MODEL, driver, "walk", rate)
        for name in providers
        for device in range(devices)
    ]


MANY = cards("abc", HONEST, 50, driver=580)


@pytest.mark.parametrize(
    ("honest", "measured", "most"),
    [
        (MANY, (), 1.2 * 1.2 + 0.1),
        ([], (MEASURED,), 1.2 * 1.2 + 0.1),
        (MANY, (MEASURED,), 1.2 * 1.2 + 0.1),
        ([], (), allowed(References(), 111).most),
    ],
)
@pytest.mark.parametrize("share", [0.99, 0.9, 0.8, 0.7])
def test_a_driver_that_somebody_made_up_gets_no_more_time_however_often_they_pass_under_it(
    honest: list[Sample], measured: tuple[Observed, ...], most: float, share: float
) -> None:
    """Each round they take as much of what they are allowed, and what they show is learnt from."""
    known = knowing(learn(honest), *measured)
    for _ in range(8):
        rate = WALK / (share * allowed(known, 111).most)
        liars = cards("ab", rate, DEVICES_MIN, driver=111)
        known = knowing(learn([*honest, *liars]), *measured)
        assert allowed(known, 111).most <= most * 1.01


def test_better_cards_under_a_driver_of_their_own_refuse_no_honest_machine_on_any() -> None:
    """H200s shown as H100s are within the data sheet of an H100."""
    fast = [
        one for name in "ab" for one in samples(name, 0.7 * TABLE["h200-sxm-141gb"].bandwidth, driver=581)
    ]
    known = knowing(learn([*MANY, *fast]))
    assert [allowed(known, driver).code(1.2) for driver in (580, 581, 582)] == [None] * 3


def test_a_branch_of_the_driver_that_is_slower_passes_and_becomes_the_reference() -> None:
    """A quarter slower is within the band of what was learnt before, whatever driver that was."""
    slower = 0.8 * HONEST
    assert allowed(knowing(learn(MANY)), 590).code(WALK / slower) is None
    then = lesson(cards("abc", HONEST, 20, driver=580), cards("abc", slower, 30, driver=590))
    assert then.rate == slower


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.floats(0.01, 3.0), st.integers(0, 999_999)), max_size=10
    ).filter(lambda of: max(sum(name == one[0] for one in of) for name in "ab") <= DEVICES_MIN)
)
def test_fewer_than_half_of_the_devices_move_nothing_under_any_driver(
    lies: list[tuple[str, float, int]],
) -> None:
    honest = cards("ab", HONEST, DEVICES_MIN + 1, driver=580)
    liars = [
        Sample(name, f"liar-{number}", MODEL, driver, "walk", share * HONEST)
        for number, (name, share, driver) in enumerate(lies)
    ]
    assert lesson(honest, liars).rate == pytest.approx(HONEST, rel=0.01)


@given(
    st.lists(st.tuples(st.floats(0.01, 3.0), st.integers(0, 999_999)), max_size=30), st.integers(0, 999_999)
)
def test_nothing_that_is_learnt_allows_more_time_than_the_estimate(
    shown: list[tuple[float, int]], driver: int
) -> None:
    everybody = [
        Sample("ab"[number % 2], f"{number}", MODEL, of, "walk", share * HONEST)
        for number, (share, of) in enumerate(shown)
    ]
    assert allowed(knowing(learn(everybody)), driver).most <= allowed(References(), driver).most * 1.000001


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
