"""How healthy a machine is: faults, who says so, and the verdict that follows.

    HEALTHY < DEGRADED < MAINTENANCE_REQUIRED < QUARANTINED < LOST

A fault is opened by whoever reports it. What a machine says about itself is a claim: it makes the machine at most
DEGRADED, and has us look at it. Only what we see ourselves confirms a fault: a reading that we took over SSH, a GPU
proof, the lists of its provider, or an operator. In the same way a machine clears nothing: a fault ends when we looked
after its last report and saw nothing, and, where the GPU was out, when it passed a proof or was reset since then.

The verdict is that of the worst open fault. Losing contact is no fault (law 5), and so silence changes no verdict; the
age of the evidence is shown beside it. Nothing here ends a machine: `repair.py` decides what is done about a fault.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.xid import XidClass, meaning


class Verdict(StrEnum):
    """How healthy a machine is, best first."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It works, and something about it is wrong or in doubt."""
    MAINTENANCE_REQUIRED = "maintenance_required"
    """It has to be reset, or will be taken back, and is best not used for what must not stop."""
    QUARANTINED = "quarantined"
    """A part of what was sold does not work."""
    LOST = "lost"
    """Its provider says that it does not run."""


UNFIT = frozenset({Verdict.MAINTENANCE_REQUIRED, Verdict.QUARANTINED, Verdict.LOST})
"""No lease is given a machine that waits with such a verdict."""


class Source(StrEnum):
    """Who reports a fault."""

    SAMPLE = "sample"
    """The machine, in what its agent sends."""
    LOOK = "look"
    """We, in a reading that we took over SSH."""
    PROOF = "proof"
    PROVIDER = "provider"
    OPERATOR = "operator"


CONFIRMING = frozenset(Source) - {Source.SAMPLE}


class FaultCode(StrEnum):
    MACHINE_ERROR = "machine_error"
    """The driver reported an error that takes the machine out."""
    GPU_ERROR = "gpu_error"
    """The driver reported an error that takes a GPU out."""
    UNKNOWN_ERROR = "unknown_error"
    """The driver reported an error that our table does not have."""
    MEMORY_WEARS = "memory_wears"
    GPU_LOST = "gpu_lost"
    GPU_MISSING = "gpu_missing"
    RECOVERY_NEEDED = "recovery_needed"
    MEMORY_BROKEN = "memory_broken"
    MEMORY_REPAIR_PENDING = "memory_repair_pending"
    NVLINK_DOWN = "nvlink_down"
    FABRIC_UNHEALTHY = "fabric_unhealthy"
    HARDWARE_SLOWDOWN = "hardware_slowdown"
    PROOF_FAILED = "proof_failed"
    PROVIDER_DOWN = "provider_down"
    PROVIDER_MISSING = "provider_missing"
    EVICTION_ANNOUNCED = "eviction_announced"
    UNDER_MAINTENANCE = "under_maintenance"
    """An operator took the machine out."""
    HANDED_BACK = "handed_back"
    """Its customer handed it back because it does not work."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a fault means, and what ends it."""

    words: str
    claimed: Verdict
    """While only the machine says so."""
    confirmed: Verdict
    counts_after: timedelta = timedelta(0)
    """How long it has to be reported before it counts."""
    lapses_after: timedelta | None = None
    """How long after its last report it is over by itself; None when only we can clear it."""
    proves_again: bool = False
    """Whether the GPU has to pass a proof, or the machine to be reset, before the fault is cleared."""
    event: bool = False
    """Whether it is an event that a later reading still lists, and no state that a later reading would show ended."""


_V = Verdict
_F = FaultCode
_DAY = timedelta(days=1)
RULES: Mapping[FaultCode, Rule] = {
    _F.MACHINE_ERROR: Rule(
        "an error that takes the machine out", _V.DEGRADED, _V.QUARANTINED, proves_again=True, event=True
    ),
    _F.GPU_ERROR: Rule(
        "an error that takes a GPU out until it is reset",
        _V.DEGRADED,
        _V.MAINTENANCE_REQUIRED,
        proves_again=True,
        event=True,
    ),
    _F.UNKNOWN_ERROR: Rule(
        "an error of the driver that is not in our table",
        _V.DEGRADED,
        _V.DEGRADED,
        lapses_after=_DAY,
        event=True,
    ),
    _F.MEMORY_WEARS: Rule(
        "many corrected memory errors", _V.DEGRADED, _V.DEGRADED, lapses_after=_DAY, event=True
    ),
    _F.GPU_LOST: Rule("a GPU does not answer", _V.DEGRADED, _V.QUARANTINED, proves_again=True),
    _F.GPU_MISSING: Rule("fewer GPUs than were sold", _V.DEGRADED, _V.QUARANTINED, proves_again=True),
    _F.RECOVERY_NEEDED: Rule(
        "the driver asks for a recovery", _V.DEGRADED, _V.MAINTENANCE_REQUIRED, proves_again=True
    ),
    _F.MEMORY_BROKEN: Rule("memory that cannot be repaired", _V.DEGRADED, _V.QUARANTINED),
    _F.MEMORY_REPAIR_PENDING: Rule("memory that the next reset of the GPU repairs", _V.DEGRADED, _V.DEGRADED),
    _F.NVLINK_DOWN: Rule("an NVLink is down", _V.DEGRADED, _V.DEGRADED, counts_after=timedelta(minutes=1)),
    _F.FABRIC_UNHEALTHY: Rule(
        "the NVLink fabric is not healthy",
        _V.DEGRADED,
        _V.MAINTENANCE_REQUIRED,
        counts_after=timedelta(minutes=1),
    ),
    _F.HARDWARE_SLOWDOWN: Rule(
        "the hardware slows a GPU down",
        _V.DEGRADED,
        _V.DEGRADED,
        counts_after=timedelta(minutes=2),
        lapses_after=timedelta(minutes=10),
    ),
    _F.PROOF_FAILED: Rule("it failed its GPU proof", _V.QUARANTINED, _V.QUARANTINED),
    _F.PROVIDER_DOWN: Rule("its provider lists it as down", _V.LOST, _V.LOST),
    _F.PROVIDER_MISSING: Rule("its provider does not list it", _V.LOST, _V.LOST),
    _F.EVICTION_ANNOUNCED: Rule(
        "its provider will take it back", _V.MAINTENANCE_REQUIRED, _V.MAINTENANCE_REQUIRED
    ),
    _F.UNDER_MAINTENANCE: Rule("an operator took it out", _V.MAINTENANCE_REQUIRED, _V.MAINTENANCE_REQUIRED),
    _F.HANDED_BACK: Rule("its customer handed it back", _V.DEGRADED, _V.DEGRADED),
}
"""Every fault, with what it means. The starting values are those of gpud and NVSentinel, made milder while only the
machine speaks."""

OF_ROWS = frozenset(
    {
        _F.PROOF_FAILED,
        _F.PROVIDER_DOWN,
        _F.PROVIDER_MISSING,
        _F.EVICTION_ANNOUNCED,
        _F.UNDER_MAINTENANCE,
        _F.HANDED_BACK,
    }
)
"""Faults that are read from rows of ours each time, and end when these no longer say so."""
XIDS_FORGOTTEN_AFTER = _DAY
"""An error that a reading lists counts for as long."""
HARDWARE_THROTTLE = 8 | 64 | 128
"""NVML's bits for a slowdown by hardware, by hardware because of heat, and by a power brake."""
LOOK_AGAIN_AFTER = timedelta(minutes=5)
LOOKS_APART = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What a reading says about one GPU. None where the driver does not say."""

    index: int
    lost: bool
    recovery_action: int | None = None
    """NVML field 230: 0 none, 1 reset the GPU, 2 reboot, 3 drain, 4 drain and reset, ..."""
    rows_failed: bool | None = None
    rows_pending: bool | None = None
    links: int | None = None
    active_links: int | None = None
    fabric: str | None = None
    throttle: int | None = None


@dataclass(frozen=True, slots=True)
class XidReading:
    number: int
    gpu: int | None
    """The GPU's index; None if it is not known, and for a switch."""
    at: datetime
    """By our clock."""
    of_switch: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of a machine's GPUs at one moment, by the machine's own word."""

    at: datetime
    """By our clock."""
    source: Source
    gpus: tuple[GpuReading, ...] | None
    """None when the GPUs could not be read, which is no fault: it says nothing about them."""
    xids: tuple[XidReading, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A fault, as one reading shows it."""

    code: FaultCode
    gpu: int | None
    at: datetime
    detail: str
    xid: int | None = None

    @property
    def key(self) -> tuple[FaultCode, int | None, int | None]:
        return self.code, self.gpu, self.xid


@dataclass(frozen=True, slots=True)
class Fault:
    """An open fault of a machine."""

    code: FaultCode
    gpu: int | None
    """The index of the GPU; None when it concerns the machine."""
    xid: int | None
    source: Source
    """Who reported it first."""
    first_at: datetime
    last_at: datetime
    """When it was reported last."""
    confirmed_at: datetime | None
    """When we saw it ourselves first; None while only the machine says so."""
    detail: str

    @property
    def key(self) -> tuple[FaultCode, int | None, int | None]:
        return self.code, self.gpu, self.xid

    @property
    def verdict(self) -> Verdict:
        """What it makes of the machine."""
        rule = RULES[self.code]
        if self.last_at - self.first_at < rule.counts_after:
            return Verdict.HEALTHY
        return rule.claimed if self.confirmed_at is None else rule.confirmed


def faults_seen(reading: Reading, gpus_sold: int, *, since: datetime | None = None) -> Iterator[Seen]:
    """The faults that a reading shows. Errors of the driver from before `since` are left out: they are cleared."""
    for gpu in reading.gpus or ():
        yield from _of_gpu(gpu, reading.at)
    if reading.gpus is not None and len(reading.gpus) < gpus_sold:
        detail = f"{len(reading.gpus)} of {gpus_sold} GPUs are there"
        yield Seen(FaultCode.GPU_MISSING, None, reading.at, detail)
    oldest = (
        reading.at - XIDS_FORGOTTEN_AFTER if since is None else max(since, reading.at - XIDS_FORGOTTEN_AFTER)
    )
    for xid in reading.xids:
        code = _of_xid(xid)
        if code is not None and xid.at > oldest:
            means = meaning(xid.number, of_switch=xid.of_switch)
            yield Seen(code, xid.gpu, xid.at, f"XID {xid.number}: {means.words}", xid.number)


def _of_gpu(gpu: GpuReading, at: datetime) -> Iterator[Seen]:
    def seen(code: FaultCode, detail: str) -> Seen:
        return Seen(code, gpu.index, at, f"GPU {gpu.index} {detail}")

    if gpu.lost:
        yield seen(FaultCode.GPU_LOST, "does not answer")
        return  # What it said before is old.
    if gpu.recovery_action:
        yield seen(FaultCode.RECOVERY_NEEDED, f"needs recovery action {gpu.recovery_action}")
    if gpu.rows_failed:
        yield seen(FaultCode.MEMORY_BROKEN, "has a memory row that could not be remapped")
    if gpu.rows_pending:
        yield seen(FaultCode.MEMORY_REPAIR_PENDING, "has a memory row that the next reset remaps")
    if gpu.links and gpu.active_links is not None and gpu.active_links < gpu.links:
        yield seen(FaultCode.NVLINK_DOWN, f"has {gpu.active_links} of {gpu.links} NVLinks")
    if gpu.fabric in ("unhealthy", "limited"):
        yield seen(FaultCode.FABRIC_UNHEALTHY, f"reports an NVLink fabric that is {gpu.fabric}")
    if gpu.throttle is not None and gpu.throttle & HARDWARE_THROTTLE:
        yield seen(FaultCode.HARDWARE_SLOWDOWN, "is slowed down by its hardware")


_OF_XIDS = {
    XidClass.MACHINE_OUT: FaultCode.MACHINE_ERROR,
    XidClass.GPU_OUT: FaultCode.GPU_ERROR,
    XidClass.UNKNOWN: FaultCode.UNKNOWN_ERROR,
}


def _of_xid(xid: XidReading) -> FaultCode | None:
    if xid.number == 92 and not xid.of_switch:
        return FaultCode.MEMORY_WEARS
    return _OF_XIDS.get(meaning(xid.number, of_switch=xid.of_switch).of)


def with_seen(open_faults: Collection[Fault], seen: Iterable[Seen], source: Source) -> tuple[Fault, ...]:
    """The open faults once a source has reported what it saw. Reports may come twice and in any order."""
    faults = {fault.key: fault for fault in open_faults}
    for each in seen:
        confirmed_at = each.at if source in CONFIRMING else None
        known = faults.get(each.key)
        if known is None:
            faults[each.key] = Fault(
                code=each.code,
                gpu=each.gpu,
                xid=each.xid,
                source=source,
                first_at=each.at,
                last_at=each.at,
                confirmed_at=confirmed_at,
                detail=each.detail,
            )
            continue
        times = [at for at in (known.confirmed_at, confirmed_at) if at is not None]
        faults[each.key] = replace(
            known,
            first_at=min(known.first_at, each.at),
            last_at=max(known.last_at, each.at),
            confirmed_at=min(times, default=None),
            detail=each.detail if each.at >= known.last_at else known.detail,
        )
    return tuple(sorted(faults.values(), key=_order))


def _order(fault: Fault) -> tuple[datetime, str, int, int]:
    gpu, xid = (-1 if number is None else number for number in (fault.gpu, fault.xid))
    return fault.first_at, fault.code, gpu, xid


@dataclass(frozen=True, slots=True)
class Cleared:
    """What may clear faults: when we looked last and what we saw then, and since when the GPUs are known to be good."""

    looked_at: datetime | None
    """When we took the last reading ourselves."""
    seen: frozenset[tuple[FaultCode, int | None, int | None]]
    """The faults that it showed."""
    good_since: datetime | None
    """When the GPUs passed their last proof, or the machine was reset last, whichever was later."""


def still_open(faults: Iterable[Fault], cleared: Cleared, now: datetime) -> tuple[Fault, ...]:
    """The faults that are still open."""
    return tuple(fault for fault in faults if not _is_over(fault, cleared, now))


def _is_over(fault: Fault, cleared: Cleared, now: datetime) -> bool:
    rule = RULES[fault.code]
    if fault.code in OF_ROWS:
        return False
    if rule.lapses_after is not None and now - fault.last_at >= rule.lapses_after:
        return True
    good = cleared.good_since is not None and cleared.good_since > fault.last_at
    if rule.proves_again and not good:
        return False
    looked = cleared.looked_at is not None and cleared.looked_at > fault.last_at
    if rule.event:
        return rule.proves_again and looked
    return looked and fault.key not in cleared.seen


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    fault: Fault | None
    """The worst open fault, the oldest of equal ones; None when the machine is healthy."""

    @property
    def is_maintenance(self) -> bool:
        """Whether nothing is worse than that an operator took it out."""
        return self.fault is not None and self.fault.code is FaultCode.UNDER_MAINTENANCE

    @property
    def why(self) -> str:
        if self.fault is None:
            return "no fault is known"
        said = "" if self.fault.confirmed_at is not None else ", as the machine itself says"
        return f"{RULES[self.fault.code].words}{said}: {self.fault.detail}"


def judge(faults: Iterable[Fault]) -> Judgement:
    """The verdict that open faults come to."""
    order = list(Verdict)
    counted = [fault for fault in faults if fault.verdict is not Verdict.HEALTHY]
    if not counted:
        return Judgement(Verdict.HEALTHY, None)
    worst = min(counted, key=lambda fault: (-order.index(fault.verdict), *_order(fault)))
    return Judgement(worst.verdict, worst)


def look_due(faults: Collection[Fault], looked_at: datetime | None, now: datetime) -> datetime | None:
    """When we look at a machine ourselves next; None when there is nothing to look for."""
    watched = [fault for fault in faults if fault.code not in OF_ROWS]
    if not watched:
        return None
    if looked_at is None:
        return now
    if any(fault.confirmed_at is None and fault.last_at > looked_at for fault in watched):
        return looked_at + LOOKS_APART
    return looked_at + LOOK_AGAIN_AFTER
