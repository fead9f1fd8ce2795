"""Detectors: what the samples of a machine, or our own rows, say about a condition of its lease.

A condition that samples show begins when each sample of a while was beyond one level, and is over when each sample of
a while was below another, lower one. A gap in the samples shows nothing. So a value that moves around a level switches
nothing on and off, and neither does a machine that is silent for a moment.

Silence ends what only samples show, because nobody knows whether it lasts; it is never a reason to do something.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain.enforcement import (
    OF_SAMPLES,
    Absent,
    Basis,
    Detector,
    EnforcementAction,
    Present,
    Silent,
    Symptom,
    Unclear,
)
from control_plane.domain.enforcement_rules import (
    EnforcementRules,
    IdleRule,
    KvRule,
    MemoryRule,
    SampleRule,
    ThroughputRule,
)
from control_plane.domain.reading import Reading
from control_plane.domain.throughput import (
    WHOLE_BP,
    Cause,
    Sampled,
    Usual,
    cause_of,
    requests_lost,
    throughput_of,
)


@dataclass(frozen=True, slots=True)
class Point:
    """What one sample says about a condition."""

    at: datetime
    value: int | None
    """In the detector's unit; None: it says nothing."""
    enters: bool
    """It is beyond the level at which the condition begins."""
    leaves: bool
    """It is below the level at which the condition is over."""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """For how long, in seconds, all samples have to be beyond a level."""

    enter_seconds: int
    leave_seconds: int


# Hysteresis


def held_since(
    points: Sequence[Point],
    flag: Callable[[Point], bool],
    seconds: int,
    rule: SampleRule,
    now: datetime,
) -> datetime | None:
    """Since when all points have a flag, if that is for at least so many seconds without a gap; None otherwise.

    `points` are in the order of their times.
    """
    gap, since, last = timedelta(seconds=rule.gap_seconds), None, now
    for point in reversed(points):
        if last - point.at > gap or not flag(point):
            break
        since = last = point.at
    if since is None or now - since < timedelta(seconds=seconds):
        return None
    return since


@dataclass(frozen=True, slots=True)
class Holds:
    since: datetime
    fully: bool
    """Whether the last sample is beyond the level to enter, and not only above the one to leave."""


def judged(
    points: Sequence[Point],
    *,
    is_open: bool,
    hysteresis: Hysteresis,
    rule: SampleRule,
    now: datetime,
) -> Holds | Absent | Unclear | Silent:
    """Whether the condition holds, and since when; that it does not; or that nothing changes.

    While a finding is open, the condition holds until it was below the level to leave for long enough. Samples that say
    nothing about it are as if they were missing.
    """
    points = [point for point in points if point.value is not None or point.leaves]
    if not points or now - points[-1].at > timedelta(seconds=rule.silent_seconds):
        return Silent() if is_open else Unclear()
    if is_open:
        left = held_since(points, lambda point: point.leaves, hysteresis.leave_seconds, rule, now)
        if left is not None:
            return Absent("the condition is over")
        return Holds(points[-1].at, fully=points[-1].enters)
    entered = held_since(points, lambda point: point.enters, hysteresis.enter_seconds, rule, now)
    return Unclear() if entered is None else Holds(entered, fully=True)


# What single samples say


def memory_points(samples: Sequence[Sampled], rule: MemoryRule) -> tuple[Point, ...]:
    """The fullest GPU's memory in basis points, with the KV cache or requests that lost their cache; or a host whose
    tasks all wait for memory.
    """
    points: list[Point] = []
    before: Reading | None = None
    for sample in samples:
        points.append(_memory_point(sample, before, rule))
        before = sample.reading
    return tuple(points)


def _memory_point(sample: Sampled, before: Reading | None, rule: MemoryRule) -> Point:
    reading = sample.reading
    used = [
        gpu.memory_used_mib * WHOLE_BP // gpu.memory_total_mib
        for gpu in reading.gpus
        if gpu.memory_used_mib is not None and gpu.memory_total_mib
    ]
    gpu, kv, stalled = max(used, default=None), kv_bp(reading), reading.host.pressure.memory_full_bp
    if gpu is None and stalled is None:
        return Point(sample.at, None, enters=False, leaves=False)
    preempted = requests_lost(reading, before)
    gpu_bp, cache_bp, stalled_bp = gpu or 0, kv or 0, stalled or 0
    full = gpu_bp >= rule.gpu_enter_bp and (cache_bp >= rule.kv_enter_bp or preempted)
    eased = gpu_bp < rule.gpu_leave_bp or (cache_bp < rule.kv_leave_bp and not preempted)
    words = [
        f"{percent(gpu_bp)} of GPU memory and {percent(cache_bp)} of the KV cache are in use" if full else "",
        f"all tasks wait for host memory {percent(stalled_bp)} of the time"
        if stalled_bp >= rule.stalled_enter_bp
        else "",
    ]
    return Point(
        sample.at,
        gpu_bp,
        enters=full or stalled_bp >= rule.stalled_enter_bp,
        leaves=eased and stalled_bp < rule.stalled_leave_bp,
        words=", and ".join(filter(None, words)),
    )


def kv_bp(reading: Reading) -> int | None:
    """The fullest KV cache of the machine's inference servers, in basis points."""
    return max(
        (server.kv_cache_bp for server in reading.servers if server.kv_cache_bp is not None), default=None
    )


def kv_points(samples: Sequence[Sampled], rule: KvRule) -> tuple[Point, ...]:
    """The KV cache in use, in basis points, `ahead_seconds` after each sample, if it goes on growing as it did.

    The growth is the slope of the least squares over `window_seconds`, in whole numbers, so that every machine computes
    the same.
    """
    known = [(sample.at, kv_bp(sample.reading)) for sample in samples]
    points: list[Point] = []
    first = 0
    for number, (at, cache) in enumerate(known):
        while at - known[first][0] > timedelta(seconds=rule.window_seconds):
            first += 1
        window = [(then, value) for then, value in known[first : number + 1] if value is not None]
        if cache is None or len(window) < rule.samples_min:
            points.append(Point(at, None, enters=False, leaves=cache is None))
            continue
        ahead = _extrapolated(window, cache, rule.ahead_seconds)
        soon = f"{percent(min(ahead, WHOLE_BP))} will be in {rule.ahead_seconds // 60} min"
        words = f"{percent(cache)} of the KV cache is in use, and {soon}"
        points.append(
            Point(at, ahead, enters=ahead >= rule.enter_bp, leaves=ahead < rule.leave_bp, words=words)
        )
    return tuple(points)


def _extrapolated(window: Sequence[tuple[datetime, int]], cache: int, ahead_seconds: int) -> int:
    start = window[0][0]
    times = [int((at - start).total_seconds()) for at, _ in window]
    values = [value for _, value in window]
    count, sum_t, sum_v = len(window), sum(times), sum(values)
    slope_of = count * sum(t * v for t, v in zip(times, values, strict=True)) - sum_t * sum_v
    slope_by = count * sum(t * t for t in times) - sum_t * sum_t
    if slope_by <= 0 or slope_of <= 0:
        return cache
    return cache + slope_of * ahead_seconds // slope_by


def idle_points(samples: Sequence[Sampled], rule: IdleRule) -> tuple[Point, ...]:
    """The utilisation of the busiest GPU in percent; a machine that serves requests is not idle."""
    return tuple(_idle_point(sample, rule) for sample in samples)


def _idle_point(sample: Sampled, rule: IdleRule) -> Point:
    reading = sample.reading
    used = [gpu.utilisation_percent for gpu in reading.gpus]
    known = [percent for percent in used if percent is not None]
    if reading.failure is not None or not used or len(known) < len(used):
        return Point(sample.at, None, enters=False, leaves=True)  # What is not known is never called idle.
    busiest = max(known)
    serves = any((server.running or 0) + (server.waiting or 0) for server in reading.servers)
    return Point(
        sample.at,
        busiest,
        enters=busiest <= rule.enter_percent and not serves,
        leaves=busiest >= rule.leave_percent or serves,
        words=f"no GPU is used more than {rule.enter_percent} %, and no request runs",
    )


# Throughput


def throughput_points(samples: Sequence[Sampled], rule: ThroughputRule, usual: Usual) -> tuple[Point, ...]:
    """The throughput in basis points of what is usual with as many requests."""
    return tuple(_throughput_point(sample, rule, usual) for sample in samples)


def _throughput_point(sample: Sampled, rule: ThroughputRule, usual: Usual) -> Point:
    found = throughput_of(sample.reading.servers)
    if found is None:
        return Point(sample.at, None, enters=False, leaves=True)
    batch, throughput = found
    expected = usual.by_batch.get(batch)
    if not expected:
        return Point(sample.at, None, enters=False, leaves=True)
    share = throughput * WHOLE_BP // expected
    reasons = sorted({word for gpu in sample.reading.gpus for word in gpu.throttles() or ()})
    slowed = f"; clocks are reduced: {', '.join(reasons).replace('_', ' ')}" if reasons else ""
    return Point(
        sample.at,
        share,
        enters=share < rule.enter_bp,
        leaves=share >= rule.leave_bp,
        words=f"{percent(share)} of the usual tokens per second and request are generated{slowed}",
    )


# All of them together


@dataclass(frozen=True, slots=True)
class Watch:
    """What the detectors that read samples are asked about one machine."""

    samples: Sequence[Sampled]
    """Those of the windows, oldest first; where nothing is suspicious, only the last one."""
    usual: Usual
    idle_stop: timedelta | None
    """After which idle time the lease's customer wants the machine to be stopped; None: they do not."""


EVIDENCE_POINTS_MAX = 40


def symptom_of(
    detector: Detector, watch: Watch, rules: EnforcementRules, now: datetime, *, since: datetime | None
) -> Symptom:
    """What a detector says about a machine by its samples. `since`: when the open finding's condition began."""
    points, hysteresis = _points(detector, watch, rules)
    found = judged(points, is_open=since is not None, hysteresis=hysteresis, rule=rules.samples, now=now)
    if not isinstance(found, Holds):
        return found
    began, words = since or found.since, _words(points)
    evidence = {
        "points": [[point.at.isoformat(), point.value] for point in points[-EVIDENCE_POINTS_MAX:]],
        "samples": len(points),
    }
    if detector is Detector.THROUGHPUT_DEGRADATION:
        cause = cause_of(watch.samples, [point.enters for point in points], rules.throughput)
        return Present(
            began,
            f"{words}{_BECAUSE.get(cause, '')}",
            Basis.CLAIM,
            {**evidence, "cause": cause},
            fully=found.fully,
            helps=_HELPS.get(cause),
        )
    if detector is not Detector.IDLE or watch.idle_stop is None:
        return Present(began, words, Basis.CLAIM, evidence, fully=found.fully)
    return Present(
        began,
        f"{words} since {began:%Y-%m-%d %H:%M} UTC; it is to be stopped after {_length(watch.idle_stop)}",
        Basis.CONSENT,
        {**evidence, "idle_stop_seconds": int(watch.idle_stop.total_seconds())},
        until=began + watch.idle_stop,
        fully=found.fully,
    )


_HELPS: Mapping[Cause | None, frozenset[EnforcementAction]] = {
    Cause.MACHINE: frozenset({EnforcementAction.NOTIFY, EnforcementAction.CHECK_MACHINE}),
    Cause.CROWD: frozenset(
        {EnforcementAction.NOTIFY, EnforcementAction.THROTTLE_ADMISSION, EnforcementAction.SMALLER_BATCH}
    ),
    Cause.UNKNOWN: frozenset({EnforcementAction.NOTIFY}),
}
"""What can help. While it is between its levels, no sample is slow and the cause is not asked: nothing changes then."""
_BECAUSE: Mapping[Cause | None, str] = {
    Cause.MACHINE: "; the machine slows it",
    Cause.CROWD: "; more requests run than the KV cache has room for",
}


def _words(points: Sequence[Point]) -> str:
    """What the last sample says that is beyond the level, or else the last one."""
    return next((point.words for point in reversed(points) if point.enters), points[-1].words)


def _points(
    detector: Detector, watch: Watch, rules: EnforcementRules
) -> tuple[tuple[Point, ...], Hysteresis]:
    match detector:
        case Detector.MEMORY_PRESSURE:
            memory = rules.memory
            return memory_points(watch.samples, memory), Hysteresis(
                memory.enter_seconds, memory.leave_seconds
            )
        case Detector.KV_CACHE_GROWTH:
            return kv_points(watch.samples, rules.kv), Hysteresis(
                rules.kv.enter_seconds, rules.kv.leave_seconds
            )
        case Detector.THROUGHPUT_DEGRADATION:
            rule = rules.throughput
            points = throughput_points(watch.samples, rule, watch.usual)
            return points, Hysteresis(rule.enter_seconds, rule.leave_seconds)
        case Detector.IDLE:
            return idle_points(watch.samples, rules.idle), Hysteresis(
                rules.idle.enter_seconds, rules.idle.leave_seconds
            )
        case _:
            raise ValueError(f"{detector} reads no samples")


def window_of(detector: Detector, rules: EnforcementRules, *, is_open: bool) -> timedelta:
    """How far back a detector reads."""
    match detector:
        case Detector.MEMORY_PRESSURE:
            seconds = rules.memory.leave_seconds if is_open else rules.memory.enter_seconds
        case Detector.KV_CACHE_GROWTH:
            held = rules.kv.leave_seconds if is_open else rules.kv.enter_seconds
            seconds = held + rules.kv.window_seconds
        case Detector.THROUGHPUT_DEGRADATION:
            seconds = rules.throughput.leave_seconds if is_open else rules.throughput.enter_seconds
        case Detector.IDLE:
            seconds = rules.idle.leave_seconds if is_open else rules.idle.enter_seconds
        case _:
            raise ValueError(f"{detector} reads no samples")
    return timedelta(seconds=seconds + rules.samples.gap_seconds)


def suspects(last: Sampled, rules: EnforcementRules, usual: Usual, now: datetime) -> frozenset[Detector]:
    """The detectors whose condition may begin, by the last sample alone: for the others no window is read."""
    if now - last.at > timedelta(seconds=rules.samples.gap_seconds):
        return frozenset()
    found = set[Detector]()
    reading = last.reading
    memory = memory_points([last], rules.memory)[0]
    fills = memory.value is not None and memory.value >= rules.memory.gpu_enter_bp
    if memory.enters or (fills and reading.servers):
        found.add(Detector.MEMORY_PRESSURE)
    cache = kv_bp(reading)
    if cache is not None and cache >= rules.kv.watch_bp:
        found.add(Detector.KV_CACHE_GROWTH)
    if throughput_points([last], rules.throughput, usual)[0].enters:
        found.add(Detector.THROUGHPUT_DEGRADATION)
    if idle_points([last], rules.idle)[0].enters:
        found.add(Detector.IDLE)
    return frozenset(found)


def read_by(
    last: Sampled | None,
    is_open: Collection[Detector],
    usual: Usual,
    rules: EnforcementRules,
    now: datetime,
) -> dict[Detector, timedelta]:
    """The detectors that read the samples of a machine now, and how far back each reads."""
    suspicious = frozenset[Detector]() if last is None else suspects(last, rules, usual, now)
    return {
        detector: window_of(detector, rules, is_open=detector in is_open)
        for detector in Detector
        if detector in suspicious or (detector in is_open and detector in OF_SAMPLES)
    }


def sample_symptoms(
    watch: Watch,
    reads: Mapping[Detector, timedelta],
    since: Mapping[Detector, datetime],
    rules: EnforcementRules,
    now: datetime,
) -> dict[Detector, Symptom]:
    """What these detectors say about a machine. `since`: when the conditions of open findings began.

    `watch` may have more samples than a detector reads.
    """
    return {
        detector: symptom_of(
            detector,
            replace(watch, samples=[sample for sample in watch.samples if sample.at >= now - window]),
            rules,
            now,
            since=since.get(detector),
        )
        for detector, window in reads.items()
    }


def percent(bp: int) -> str:
    return f"{bp // 100} %"


def _length(length: timedelta) -> str:
    minutes = int(length.total_seconds()) // 60
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"
