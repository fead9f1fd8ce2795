"""How healthy a machine is: faults, who says so, and the verdict that follows.

    HEALTHY < DEGRADED < MAINTENANCE_REQUIRED < QUARANTINED < LOST

A fault is opened by whoever reports it. What a machine says about itself is a claim: it makes the machine at most
DEGRADED, and has us look at it. Only what we see ourselves confirms a fault: a reading that we took over SSH, a GPU
proof, the lists of its provider, or an operator. In the same way a machine clears nothing: a fault ends when we looked
after its last report and saw nothing, and, where the GPU was out, when it passed a proof or was reset since then.

The verdict is that of the worst open fault. Losing contact is no fault (law 5), and so silence changes no verdict; the
age of the evidence is shown beside it. Nothing here ends a machine: `repair.py` decides what is done about a fault.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum


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
    PROGRAM_ERRORS = "program_errors"
    """Errors that programs usually cause come again and again on one GPU."""
    GPU_LOST = "gpu_lost"
    GPU_MISSING = "gpu_missing"
    RECOVERY_NEEDED = "recovery_needed"
    RESET_ADVISED = "reset_advised"
    """The driver asks for a reset, and what runs may end first."""
    MEMORY_BROKEN = "memory_broken"
    MEMORY_REPAIR_PENDING = "memory_repair_pending"
    NVLINK_DOWN = "nvlink_down"
    PCIE_REDUCED = "pcie_reduced"
    """Under load, a GPU's PCIe link is narrower than when its machine was accepted, or slower than it was at work."""
    FABRIC_UNHEALTHY = "fabric_unhealthy"
    HARDWARE_SLOWDOWN = "hardware_slowdown"
    PROOF_FAILED = "proof_failed"
    PROVIDER_DOWN = "provider_down"
    PROVIDER_MISSING = "provider_missing"
    EVICTION_ANNOUNCED = "eviction_announced"
    UNDER_MAINTENANCE = "under_maintenance"
    """An operator took the machine out."""
    PROVIDER_MAINTENANCE = "provider_maintenance"
    """Its provider announced that it will work on the machine."""
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
    forgotten_after: timedelta | None = None
    """While it does not count yet: how long after its last report it is over by itself; None when it is not."""
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
    _F.MEMORY_WEARS: Rule("memory that wears out", _V.DEGRADED, _V.DEGRADED, lapses_after=_DAY, event=True),
    # It may be the customer's own program, so it costs nobody anything: its GPU is to prove itself.
    _F.PROGRAM_ERRORS: Rule(
        "errors that programs usually cause, again and again on one GPU",
        _V.HEALTHY,
        _V.HEALTHY,
        lapses_after=_DAY,
        proves_again=True,
        event=True,
    ),
    _F.GPU_LOST: Rule("a GPU does not answer", _V.DEGRADED, _V.QUARANTINED, proves_again=True),
    _F.GPU_MISSING: Rule("fewer GPUs than were sold", _V.DEGRADED, _V.QUARANTINED, proves_again=True),
    _F.RECOVERY_NEEDED: Rule(
        "the driver asks for a recovery", _V.DEGRADED, _V.MAINTENANCE_REQUIRED, proves_again=True
    ),
    _F.RESET_ADVISED: Rule("the driver asks for a reset when work is done", _V.DEGRADED, _V.DEGRADED),
    _F.MEMORY_BROKEN: Rule("memory that cannot be repaired", _V.DEGRADED, _V.QUARANTINED),
    _F.MEMORY_REPAIR_PENDING: Rule("memory that the next reset of the GPU repairs", _V.DEGRADED, _V.DEGRADED),
    _F.NVLINK_DOWN: Rule("an NVLink is down", _V.DEGRADED, _V.DEGRADED, counts_after=timedelta(minutes=1)),
    # An idle GPU slows its link down, and values that are read one after the other may not belong together when work
    # begins. So only several reports in a row count, and a look at an idle GPU ends nothing.
    _F.PCIE_REDUCED: Rule(
        "a GPU's PCIe link is narrower or slower than it was",
        _V.DEGRADED,
        _V.DEGRADED,
        counts_after=timedelta(minutes=2),
        forgotten_after=timedelta(minutes=1),
    ),
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
    _F.PROVIDER_MAINTENANCE: Rule(
        "its provider will work on it", _V.MAINTENANCE_REQUIRED, _V.MAINTENANCE_REQUIRED
    ),
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
        _F.PROVIDER_MAINTENANCE,
        _F.HANDED_BACK,
    }
)
"""Faults that are read from rows of ours each time, and end when these no longer say so."""
PLANNED_WORK = frozenset({_F.UNDER_MAINTENANCE, _F.PROVIDER_MAINTENANCE})
"""Faults that are work which is planned on a machine."""
STILL_WORKS = PLANNED_WORK | {_F.EVICTION_ANNOUNCED}
"""Faults with which everything that was sold works. None hides another one that is as bad: they may last for weeks."""
FAULTS_PER_CODE_MAX = 32
"""How many faults of a code a machine has: two for each GPU. A machine may report a million numbers of errors that our
table does not have, each of them a fault for a day."""
LOOK_AGAIN_AFTER = timedelta(minutes=5)
LOOKS_APART = timedelta(seconds=30)


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
    def counts(self) -> bool:
        """Whether it has been reported for long enough."""
        return self.last_at - self.first_at >= RULES[self.code].counts_after

    @property
    def verdict(self) -> Verdict:
        """What it makes of the machine."""
        rule = RULES[self.code]
        if not self.counts:
            return Verdict.HEALTHY
        return rule.claimed if self.confirmed_at is None else rule.confirmed


def with_seen(open_faults: Collection[Fault], seen: Iterable[Seen], source: Source) -> tuple[Fault, ...]:
    """The open faults once a source has reported what it saw. Reports may come twice and in any order.

    Of too many of a code, those are kept that we saw ourselves, and then the oldest.
    """
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
    return tuple(sorted(_few(faults.values()), key=_order))


def _few(faults: Iterable[Fault]) -> Iterator[Fault]:
    found: Counter[FaultCode] = Counter()
    for fault in sorted(faults, key=lambda fault: (fault.confirmed_at is None, *_order(fault))):
        found[fault.code] += 1
        if found[fault.code] <= FAULTS_PER_CODE_MAX:
            yield fault


def _order(fault: Fault) -> tuple[datetime, str, int, int]:
    gpu, xid = (-1 if number is None else number for number in (fault.gpu, fault.xid))
    return fault.first_at, fault.code, gpu, xid


@dataclass(frozen=True, slots=True)
class Cleared:
    """What may clear faults: when we looked last and what we saw then, and since when the GPUs are known to be good."""

    looked_at: datetime | None
    """When we took the last reading ourselves."""
    seen: frozenset[tuple[FaultCode, int | None, int | None]]
    """The faults that it showed, and those about which it could say nothing."""
    good_since: datetime | None
    """When the GPUs passed their last proof, or the machine was reset last, whichever was later."""


def still_open(faults: Iterable[Fault], cleared: Cleared, now: datetime) -> tuple[Fault, ...]:
    """The faults that are still open."""
    return tuple(fault for fault in faults if not _is_over(fault, cleared, now))


def _is_over(fault: Fault, cleared: Cleared, now: datetime) -> bool:
    rule = RULES[fault.code]
    if fault.code in OF_ROWS:
        return False
    silent = now - fault.last_at
    if rule.lapses_after is not None and silent >= rule.lapses_after:
        return True
    if rule.forgotten_after is not None and not fault.counts and silent >= rule.forgotten_after:
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
    """The worst open fault, of equal ones the oldest that is none of STILL_WORKS; None when the machine is healthy."""

    @property
    def is_maintenance(self) -> bool:
        """Whether nothing is worse than work that is planned on it."""
        return self.fault is not None and self.fault.code in PLANNED_WORK

    @property
    def still_works(self) -> bool:
        """Whether nothing is worse than what is announced."""
        return self.fault is not None and self.fault.code in STILL_WORKS

    def differs(self, before: "Judgement") -> bool:
        """Whether it says something else of what works than the one before."""
        return self.verdict is not before.verdict or self.still_works is not before.still_works

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
    worst = min(
        counted,
        key=lambda fault: (-order.index(fault.verdict), fault.code in STILL_WORKS, *_order(fault)),
    )
    return Judgement(worst.verdict, worst)


def look_due(
    faults: Collection[Fault],
    looked_at: datetime | None,
    now: datetime,
    *,
    handed_back_at: datetime | None = None,
    reset_at: datetime | None = None,
    asked_at: datetime | None = None,
    contradicted: bool = False,
) -> datetime | None:
    """When we look at a machine ourselves next; None when there is nothing to look for.

    What its customer hands back is looked at before it goes, and what was reset, to see whether that helped. So is what
    is slow without a fault that is known: at `asked_at`. `contradicted` says that our last look showed nothing: whoever
    reports a fault that is not there, again and again, would be looked at all the time.
    """
    for wanted_at in (handed_back_at, asked_at):
        if wanted_at is not None and (looked_at is None or looked_at < wanted_at):
            return wanted_at
    watched = [fault for fault in faults if fault.code not in OF_ROWS]
    if not watched:
        return None
    if looked_at is None:
        return now
    if reset_at is not None and looked_at < reset_at:
        return reset_at
    if any(fault.confirmed_at is None and fault.last_at > looked_at for fault in watched):
        return looked_at + (LOOK_AGAIN_AFTER if contradicted else LOOKS_APART)
    return looked_at + LOOK_AGAIN_AFTER
