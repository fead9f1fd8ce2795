"""Learns reference times from passed proofs of independent providers. Pure.

A single provider is never believed. Each provider counts once, however many samples it has: with the median of its
devices' medians. A reference needs at least two providers with DEVICES_MIN devices each, and the fastest of them must
be confirmed by another one within AGREE_WITHIN. The fastest one counts, so that a slow liar cannot gain time.

The driver is only claimed, and a false claim costs nothing: ten cards with an invented driver could set its reference,
and nobody would contradict them. Therefore a model's reference is learnt from all drivers together. A branch of the
driver has a reference of its own only if that is faster, and by at most AGREE_WITHIN. So an invented branch gains no
time, and honest cards of a branch that others manipulate are still in time.

Limits: somebody who owns most devices at every provider can make a reference slow, but never beyond the band of the
estimate. Somebody who owns most devices at two providers, with better cards than were sold, can make it fast, up to the
data sheet. A single provider that is really faster than all others prevents a reference until a second one confirms it.

Use only samples of passed proofs, never of emulations. `provider` must name the owner of the hardware, so that an owner
with two names is one provider.
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
"""Devices of one provider, counted by UUID."""
AGREE_WITHIN = 0.10


@dataclass(frozen=True, slots=True)
class Sample:
    """One GPU in one timed phase of a passed proof. `rate` is in the units of `reference.Times`, on our clock."""

    provider: str
    device_uuid: str
    model: str
    driver_major: int
    phase: TimedPhase
    rate: float


class Unlearnt(StrEnum):
    """Why there is no reference."""

    TOO_FEW_PROVIDERS = "too_few_providers"
    """Fewer than PROVIDERS_MIN providers have DEVICES_MIN devices each."""
    PROVIDERS_DISAGREE = "providers_disagree"
    """No other provider is within AGREE_WITHIN of the fastest one."""
    WIDER_THAN_ESTIMATED = "wider_than_estimated"
    """The reference would allow more time than the estimate does."""
    BRANCH_APART = "branch_apart"
    """A branch of the driver is slower than all drivers together, or faster by more than AGREE_WITHIN."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One provider's rate for one model and phase, with one branch of the driver or with all."""

    provider: str
    devices: int
    rate: float
    """The median of its devices' medians."""
    spread: float
    """The median absolute deviation of its devices' medians from `rate`, as a share of `rate`."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """The result for one model and phase, from the samples of all drivers or of one branch of the driver."""

    model: str
    driver_major: int
    """EVERY_DRIVER for the result of all drivers."""
    phase: TimedPhase
    rate: float | None
    reason: Unlearnt | None
    standings: tuple[Standing, ...]
    """Providers with enough devices, the fastest first."""
    refused: int
    """How many samples were faster than the model's data sheet allows."""


def learn(samples: Iterable[Sample], table: Mapping[str, Reference] = TABLE) -> list[Lesson]:
    """For each model and phase: the lesson of all drivers, then of each branch with enough samples for a reference."""
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
    by_driver.pop(EVERY_DRIVER, None)  # Samples whose driver version is malformed.
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
    """Whether a rate would allow more time than the estimate.

    Without this limit, passes at the slow end of one band could make the next reference slower, again and again.
    """
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
