"""Reference times learnt from passed proofs of providers that have nothing to do with each other. Pure.

A provider is believed by nobody alone. What it says counts once, however many samples it sends: the median over
its devices of each device's median. A reference needs two providers, DEVICES_MIN devices each, and the fastest of
them confirmed by another within AGREE_WITHIN. The fastest counts: a slow liar must not widen the slack.

A driver is a claim and costs nothing to make up: ten cards under a driver of their own could be its reference,
which nobody contradicts. So a model's reference is of all its drivers together, and a branch of the driver has one
of its own only where that is faster, and by no more than AGREE_WITHIN: a made-up branch buys no time, and honest
cards of a branch that others poison are still within the band.

Limits. Who shows most of the devices at every provider can make a reference slow, up to the estimate's band and
never beyond it. Who shows most of them at two, and they are better cards than those sold, can make it fast, up to
the data sheet. One provider that is really faster than its kind and stands alone prevents a reference until a
second one confirms it.

Feed it samples of passed proofs only (never of emulations), with `provider` naming who owns the hardware, so
that one owner under two names is one provider.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from data_plane.proof.challenger.judgement import PEAK_MARGIN, TOLERANCE
from data_plane.proof.challenger.reference import EVERY_DRIVER, TABLE, Basis, Reference, TimedPhase

PROVIDERS_MIN = 2
DEVICES_MIN = 5
"""Of one provider, by UUID."""
AGREE_WITHIN = 0.10


@dataclass(frozen=True, slots=True)
class Sample:
    """One GPU in one timed phase of one passed proof; `rate` in the units of `reference.Times`, on our clock."""

    provider: str
    device_uuid: str
    model: str
    driver_major: int
    phase: TimedPhase
    rate: float


class Unlearnt(StrEnum):
    """Why there is no reference."""

    TOO_FEW_PROVIDERS = "too_few_providers"
    """Fewer than PROVIDERS_MIN have DEVICES_MIN devices each."""
    PROVIDERS_DISAGREE = "providers_disagree"
    """No other provider comes within AGREE_WITHIN of the fastest."""
    WIDER_THAN_ESTIMATED = "wider_than_estimated"
    """It would allow more time than the estimate does."""
    BRANCH_APART = "branch_apart"
    """Of one branch of the driver: slower than all together, or faster by more than AGREE_WITHIN."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What one provider shows of one model and phase, under one branch of the driver or all."""

    provider: str
    devices: int
    rate: float
    """Median of its devices' medians."""
    spread: float
    """Median absolute deviation of its devices' medians from `rate`, as a share of it."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What came of all samples of one model and phase, or of those of one branch of the driver."""

    model: str
    driver_major: int
    """EVERY_DRIVER where it is of all."""
    phase: TimedPhase
    rate: float | None
    reason: Unlearnt | None
    standings: tuple[Standing, ...]
    """The fastest first; only providers with enough devices."""
    refused: int
    """Samples beyond what the model's data sheet allows."""


def learn(samples: Iterable[Sample], table: Mapping[str, Reference] = TABLE) -> list[Lesson]:
    """By model and phase: a lesson of all drivers, then one of each branch that would do for a reference alone."""
    found: dict[tuple[str, TimedPhase], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.model in table:
            found[sample.model, sample.phase].append(sample)
    lessons: list[Lesson] = []
    for key in sorted(found):
        together = _lesson(EVERY_DRIVER, found[key], table[key[0]])
        lessons.append(together)
        if together.rate is not None:
            lessons += _branches(together.rate, found[key], table[key[0]])
    return lessons


def _branches(together: float, samples: Iterable[Sample], reference: Reference) -> Iterable[Lesson]:
    by_driver: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_driver[sample.driver_major].append(sample)
    by_driver.pop(EVERY_DRIVER, None)  # Of a driver that cannot be read.
    for major in sorted(by_driver):
        branch = _lesson(major, by_driver[major], reference)
        if branch.rate is None:
            continue
        apart = not together <= branch.rate <= (1 + AGREE_WITHIN) * together
        yield replace(branch, rate=None, reason=Unlearnt.BRANCH_APART) if apart else branch


def _lesson(driver_major: int, samples: Sequence[Sample], reference: Reference) -> Lesson:
    first = samples[0]
    possible = [sample for sample in samples if _is_possible(sample, reference)]
    standings = sorted(_standings(possible), key=lambda one: -one.rate)
    reason: Unlearnt | None = None
    if len(standings) < PROVIDERS_MIN:
        reason = Unlearnt.TOO_FEW_PROVIDERS
    elif standings[0].rate > (1 + AGREE_WITHIN) * standings[1].rate:
        reason = Unlearnt.PROVIDERS_DISAGREE
    elif _is_wider_than_estimated(standings[0].rate, reference, first.phase):
        reason = Unlearnt.WIDER_THAN_ESTIMATED
    return Lesson(
        first.model,
        driver_major,
        first.phase,
        None if reason else standings[0].rate,
        reason,
        tuple(standings),
        len(samples) - len(possible),
    )


def _is_wider_than_estimated(rate: float, reference: Reference, phase: TimedPhase) -> bool:
    """Else each round of passes in the last one's band could be the next reference, slower every time."""
    estimate = reference.estimate().of(phase)
    return (1 + TOLERANCE[Basis.LEARNT]) / rate > (1 + TOLERANCE[estimate.basis]) / estimate.rate


def _is_possible(sample: Sample, reference: Reference) -> bool:
    peak = reference.peak(sample.phase)
    return 0 < sample.rate < (float("inf") if peak is None else peak * PEAK_MARGIN[sample.phase])


def _standings(samples: Iterable[Sample]) -> Iterable[Standing]:
    by_provider: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        by_provider[sample.provider][sample.device_uuid].append(sample.rate)
    for provider, devices in by_provider.items():
        if len(devices) >= DEVICES_MIN:
            medians = [median(rates) for rates in devices.values()]
            rate = median(medians)
            spread = median(abs(one - rate) for one in medians) / rate
            yield Standing(provider, len(devices), rate, spread)
