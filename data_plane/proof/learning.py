"""Reference times learnt from passed proofs of providers that have nothing to do with each other. Pure.

A provider is believed by nobody alone. What it says counts once, however many samples it sends: the median over
its devices of each device's median. A reference needs two providers, DEVICES_MIN devices each, and the fastest of
them confirmed by another within AGREE_WITHIN. The fastest counts: a slow liar must not widen the slack, and
nobody can look faster than the hardware is, since rates are taken on our clock and bounded by the data sheet.

Limits. Two providers that collude, alone or as the fastest we know, can make a reference slow: up to the
estimate's band, within which they would have passed anyway. One that is really faster than its kind and
stands alone prevents a reference until a second one confirms it.

Feed it samples of passed proofs only (never of emulations), with `provider` naming who owns the hardware, so
that one owner under two names is one provider.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from data_plane.proof.judgement import PEAK_MARGIN
from data_plane.proof.reference import TABLE, Reference, TimedPhase

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


@dataclass(frozen=True, slots=True)
class Standing:
    """What one provider shows of one model, driver and phase."""

    provider: str
    devices: int
    rate: float
    """Median of its devices' medians."""
    spread: float
    """Median absolute deviation of its devices' medians from `rate`, as a share of it."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What came of all samples of one model, driver and phase."""

    model: str
    driver_major: int
    phase: TimedPhase
    rate: float | None
    reason: Unlearnt | None
    standings: tuple[Standing, ...]
    """The fastest first; only providers with enough devices."""
    refused: int
    """Samples beyond what the model's data sheet allows."""


def learn(samples: Iterable[Sample], table: Mapping[str, Reference] = TABLE) -> list[Lesson]:
    """One lesson per model, driver and phase that there are samples of, in that order."""
    found: dict[tuple[str, int, TimedPhase], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.model in table:
            found[sample.model, sample.driver_major, sample.phase].append(sample)
    return [_lesson(found[key], table[key[0]]) for key in sorted(found)]


def _lesson(samples: Sequence[Sample], reference: Reference) -> Lesson:
    first = samples[0]
    possible = [sample for sample in samples if _is_possible(sample, reference)]
    standings = sorted(_standings(possible), key=lambda one: -one.rate)
    reason: Unlearnt | None = None
    if len(standings) < PROVIDERS_MIN:
        reason = Unlearnt.TOO_FEW_PROVIDERS
    elif standings[0].rate > (1 + AGREE_WITHIN) * standings[1].rate:
        reason = Unlearnt.PROVIDERS_DISAGREE
    return Lesson(
        first.model,
        first.driver_major,
        first.phase,
        None if reason else standings[0].rate,
        reason,
        tuple(standings),
        len(samples) - len(possible),
    )


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
