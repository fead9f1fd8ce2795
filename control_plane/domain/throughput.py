"""The throughput of inference servers: what it is now, what is usual with about as many requests, and what slows it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from control_plane.domain.enforcement_rules import ThroughputRule
from control_plane.domain.gpu_faults import LOADED_PERCENT
from control_plane.domain.reading import GpuReading, Reading, ServerReading

THROUGHPUT_MAX = 10**15
"""No server generates 10^12 tokens per second for a request. A machine may claim 2^64, for which no column has room."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a machine said about itself at a moment, by our clock."""

    at: datetime
    reading: Reading


@dataclass(frozen=True, slots=True)
class Usual:
    """The usual throughput of a machine: thousandths of a token per second and running request, by `batch_of`."""

    by_batch: Mapping[int, int]


def batch_of(running: int) -> int:
    """Numbers of running requests that are about the same: up to a power of two."""
    return running.bit_length()


def throughput_of(servers: Sequence[ServerReading]) -> tuple[int, int] | None:
    """The batch, and thousandths of a generated token per second and running request; None when nothing runs."""
    running = sum(server.running or 0 for server in servers)
    tokens = [
        server.generation_tokens_per_second
        for server in servers
        if server.generation_tokens_per_second is not None
    ]
    if not running or not tokens:
        return None
    return batch_of(running), min(sum(tokens) * 1000 // running, THROUGHPUT_MAX)


def hour_of(samples: Sequence[Sampled], rule: ThroughputRule) -> dict[int, int]:
    """The median throughput of an hour, by batch, of batches with enough samples."""
    by_batch: dict[int, list[int]] = {}
    for sample in samples:
        found = throughput_of(sample.reading.servers)
        if found is not None:
            by_batch.setdefault(found[0], []).append(found[1])
    return {
        batch: _median(values)
        for batch, values in sorted(by_batch.items())
        if len(values) >= rule.samples_per_hour_min
    }


@dataclass(frozen=True, slots=True)
class HoursOfBatch:
    """The hours of a machine with about as many requests."""

    batch: int
    hours: int
    """How many there are."""
    median: int
    """Of their throughputs, as `hour_of` takes it."""


def usual_of(found: Iterable[HoursOfBatch], rule: ThroughputRule) -> Usual:
    """What is usual: the median of the hours of each batch that has enough of them."""
    return Usual({each.batch: each.median for each in found if each.hours >= rule.usual_hours_min})


# What slows it


class Cause(StrEnum):
    MACHINE = "machine"
    """Its GPUs are slowed down by heat or power, or are faulty, or their PCIe link is narrower than it can be."""
    CROWD = "crowd"
    """More requests run than the KV cache has room for."""
    UNKNOWN = "unknown"
    """Anything else, such as longer prompts, another model, or a slow network."""


WHOLE_BP = 10_000
_NOT_BY_WORK = frozenset({"hardware_slowdown", "thermal", "hardware_thermal", "power_brake"})
"""Why clocks are reduced where something is wrong. A card at work is mostly at its power limit, which is usual."""


def cause_of(samples: Sequence[Sampled], slow: Sequence[bool], rule: ThroughputRule) -> Cause | None:
    """What slows a machine, by those of its samples that are slow; None if none is."""
    machine = crowd = 0
    before: Reading | None = None
    for sample, is_slow in zip(samples, slow, strict=True):
        if is_slow and any(map(_is_slowed, sample.reading.gpus)):
            machine += 1
        elif is_slow and (_is_crowded(sample.reading, rule) or requests_lost(sample.reading, before)):
            crowd += 1
        before = sample.reading
    needed = sum(slow) * rule.cause_bp
    if not needed:
        return None
    if machine * WHOLE_BP >= needed:
        return Cause.MACHINE
    return Cause.CROWD if crowd * WHOLE_BP >= needed else Cause.UNKNOWN


def requests_lost(reading: Reading, before: Reading | None) -> bool:
    """Whether requests lost their KV cache since the sample before."""
    if before is None:
        return False
    counts = {server.place: server.preemptions for server in before.servers}
    return any(
        server.preemptions is not None
        and (count := counts.get(server.place)) is not None
        and server.preemptions > count
        for server in reading.servers
    )


def _is_slowed(gpu: GpuReading) -> bool:
    narrow = (
        gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max
    )
    return (
        gpu.lost
        or bool(_NOT_BY_WORK.intersection(gpu.throttles() or ()))
        or bool(gpu.ecc_uncorrected_volatile)
        or (narrow and (gpu.utilisation_percent or 0) >= LOADED_PERCENT)
    )


def _is_crowded(reading: Reading, rule: ThroughputRule) -> bool:
    return any(server.waiting and (server.kv_cache_bp or 0) >= rule.crowded_bp for server in reading.servers)


def _median(values: Sequence[int]) -> int:
    """The middle one, or the lower one of the two in the middle."""
    return sorted(values)[(len(values) - 1) // 2]
