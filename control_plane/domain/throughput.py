"""The throughput of inference servers: what it is now, and what is usual with about as many requests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.enforcement_rules import ThroughputRule
from control_plane.domain.reading import Reading, ServerReading

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


def _median(values: Sequence[int]) -> int:
    """The middle one, or the lower one of the two in the middle."""
    return sorted(values)[(len(values) - 1) // 2]
