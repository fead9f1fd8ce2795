"""What is done about a lease that runs and should not run on as it does: actions, one after the other, mildest first.

    NOTIFY --> CHECK_MACHINE --> THROTTLE_ADMISSION --> SMALLER_BATCH --> STOP_ADMISSION --> EVICT --> SHUTDOWN;  CREDIT

A detector (`detection.py`) finds a condition of a lease. While the condition lasts, a **finding** is open, and the
actions of the detector's ladder are taken in their order, each for a limited time. Where the end of the condition is
known beforehand, as when money runs out, actions are taken so long before it; otherwise each has a time to help before
the next one.

A sample is a claim of its machine's. By itself it leads to advice to the workload, and never to an action that
interrupts the customer or moves money: these need what we know ourselves, or the customer's own wish (`may`).

Everything here is a function of stored facts and a time, so a replay of the facts gives the same decisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.ids import (
    ClaimId,
    EnforcementActionId,
    FindingId,
    LeaseId,
    MachineId,
    OrganizationId,
    ProjectId,
)
from control_plane.domain.sla import SlaTier


class Detector(StrEnum):
    SLA_VIOLATION = "sla_violation"
    """A promise of the lease was broken."""
    MEMORY_PRESSURE = "memory_pressure"
    """GPU memory and KV cache are full, or the host's memory is."""
    KV_CACHE_GROWTH = "kv_cache_growth"
    """The KV cache of an inference server will soon be full."""
    THROUGHPUT_DEGRADATION = "throughput_degradation"
    """An inference server is slower than it usually is with as many requests."""
    IDLE = "idle"
    """The GPUs do nothing."""
    ENVELOPE_BREACH = "envelope_breach"
    """The lease is outside of an envelope."""
    UNFUNDED = "unfunded"
    """The next hour of the lease cannot be set aside."""


class EnforcementAction(StrEnum):
    """What is done, mildest first. The order is that of every ladder."""

    NOTIFY = "notify"
    """Tell the customer."""
    CHECK_MACHINE = "check_machine"
    """Look at the machine ourselves, and have its GPUs prove themselves."""
    THROTTLE_ADMISSION = "throttle_admission"
    """Ask the workload to take new work more slowly."""
    SMALLER_BATCH = "smaller_batch"
    """Ask the workload for smaller batches."""
    STOP_ADMISSION = "stop_admission"
    """Ask the workload to take no new work."""
    EVICT = "evict"
    """Ask the workload to save what it has and end, because the machine will not run on."""
    SHUTDOWN = "shutdown"
    """Stop the machine at an announced time."""
    CREDIT = "credit"
    """Give money back. The clocks of the SLA do: the action names what they posted."""


ORDER = {action: number for number, action in enumerate(EnforcementAction)}
ADVICE = frozenset(
    {
        EnforcementAction.THROTTLE_ADMISSION,
        EnforcementAction.SMALLER_BATCH,
        EnforcementAction.STOP_ADMISSION,
    }
)
INTERRUPTS = frozenset({EnforcementAction.EVICT, EnforcementAction.SHUTDOWN})
SIGNALS = ADVICE | INTERRUPTS
"""What the machine's workload can read in a file."""
BOUNDED = SIGNALS | {EnforcementAction.CHECK_MACHINE}
"""Of which a run, and a region in it, has only so many."""


class Basis(StrEnum):
    """What a condition was found by."""

    CLAIM = "claim"
    """The machine says so."""
    CONSENT = "consent"
    """The machine says so, and the lease's customer wants it to have consequences."""
    OURS = "ours"
    """We know it ourselves: from the ledger, an envelope or the clock of a promise."""


def may(action: EnforcementAction, basis: Basis) -> bool:
    """Whether a condition that was found so may lead to this action."""
    if action is EnforcementAction.CREDIT:
        return basis is Basis.OURS
    return action not in INTERRUPTS or basis is not Basis.CLAIM


BASES: Mapping[Detector, frozenset[Basis]] = {
    Detector.SLA_VIOLATION: frozenset({Basis.OURS}),
    Detector.MEMORY_PRESSURE: frozenset({Basis.CLAIM}),
    Detector.KV_CACHE_GROWTH: frozenset({Basis.CLAIM}),
    Detector.THROUGHPUT_DEGRADATION: frozenset({Basis.CLAIM}),
    Detector.IDLE: frozenset({Basis.CLAIM, Basis.CONSENT}),
    Detector.ENVELOPE_BREACH: frozenset({Basis.OURS}),
    Detector.UNFUNDED: frozenset({Basis.OURS}),
}
OF_SAMPLES = frozenset(detector for detector, bases in BASES.items() if Basis.CLAIM in bases)
"""Detectors that read what machines say about themselves."""


class FindingOutcome(StrEnum):
    """How a finding was closed."""

    RECOVERED = "recovered"
    """The condition is over."""
    SILENT = "silent"
    """The machine sends no samples any more, so nobody knows whether the condition lasts."""
    UNDONE = "undone"
    """An operator undid an action."""
    STOPPED = "stopped"
    """The machine was stopped."""
    CREDITED = "credited"
    """What the broken promise gives back is on the balance."""
    GONE = "gone"
    """The lease has no such machine any more, or has ended."""


LEFT_ALONE_AFTER = frozenset({FindingOutcome.UNDONE, FindingOutcome.STOPPED})
"""Outcomes after which the detector leaves the lease alone for `mute_seconds`: an operator knows better, or the machine
is about to be off."""


class ActionEnd(StrEnum):
    """How an action ended."""

    EXPIRED = "expired"
    """Its time was over."""
    SUPERSEDED = "superseded"
    """The next action was taken, or the same one again."""
    OVER = "over"
    """The condition is over, or the lease."""
    DONE = "done"
    """What it announced was done."""
    UNDONE = "undone"
    """An operator undid it."""


@dataclass(frozen=True, slots=True)
class TierRule:
    step_seconds: int
    notice_seconds: int


@dataclass(frozen=True, slots=True)
class Bounds:
    actions_per_run: int
    actions_per_region: int
    stops_per_region: int
    share_per_region: int
    always_allowed: int
    mute_seconds: int


@dataclass(frozen=True, slots=True)
class Ladders:
    """What the decisions need of the rules (`enforcement_rules.py`)."""

    of: Mapping[Detector, tuple[EnforcementAction, ...]]
    lasts: Mapping[EnforcementAction, int]
    """Seconds."""
    tiers: Mapping[SlaTier, TierRule]
    bounds: Bounds
    renew_seconds: int


@dataclass(frozen=True, slots=True)
class WatchedLease:
    """A ready lease, with the machine that it uses."""

    lease_id: LeaseId
    claim_id: ClaimId
    machine_id: MachineId
    organization_id: OrganizationId
    project_id: ProjectId
    account: str
    region: str
    tier: SlaTier
    priority: int
    created_at: datetime

    @property
    def place(self) -> tuple[str, str]:
        return (self.account, self.region)


def degradation_order(lease: WatchedLease) -> tuple[int, int, float, UUID]:
    """The key by which leases are acted on first: the lowest tier, then the lowest priority, then the youngest."""
    tiers = list(SlaTier)
    return (tiers.index(lease.tier), lease.priority, -lease.created_at.timestamp(), lease.lease_id)


# What a detector says now.


@dataclass(frozen=True, slots=True)
class Present:
    """The condition holds."""

    since: datetime
    why: str
    """As a sentence without its stop."""
    basis: Basis
    evidence: Mapping[str, object] = field(default_factory=dict[str, object])
    until: datetime | None = None
    """When the lease's machine will be stopped, or the lease ended, if the condition lasts; None when nothing is."""
    credited: bool = False
    """What the broken promise gives back is posted."""
    fully: bool = True
    """Whether it is beyond the level at which it begins. Otherwise nothing more is done about it, until it is over."""
    helps: frozenset[EnforcementAction] | None = None
    """The actions that can help, by what causes it; None: each of the ladder."""

    def may_help(self, action: EnforcementAction) -> bool:
        return self.helps is None or action in self.helps


@dataclass(frozen=True, slots=True)
class Absent:
    """The condition does not hold."""

    why: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """It is between its levels, or not watched long enough. Nothing changes."""


@dataclass(frozen=True, slots=True)
class Silent:
    """What it depends on is not known any more."""


Symptom = Present | Absent | Unclear | Silent


@dataclass(frozen=True, slots=True)
class Taken:
    """The last action of a finding."""

    id: EnforcementActionId
    action: EnforcementAction
    at: datetime
    expires_at: datetime
    planned_at: datetime | None
    ended: ActionEnd | None
    armed: bool = True
    """Whether it was done, and not only decided."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition of a lease that holds, as it is stored."""

    id: FindingId
    detector: Detector
    claim_id: ClaimId
    opened_at: datetime
    since: datetime
    step_at: datetime
    """When its last action was taken for the first time, or it was opened."""
    taken: Taken | None


@dataclass(frozen=True, slots=True)
class Case:
    """A lease, a detector, and what there is."""

    lease: WatchedLease
    detector: Detector
    symptom: Symptom
    finding: Finding | None
    muted_until: datetime | None = None
    armed: bool = True
    """Whether what is decided is also done."""

    @property
    def taken(self) -> Taken | None:
        """The last action. One that was only decided, and about which nobody was told, does not count any more once the
        detector is armed: then the ladder begins anew.
        """
        taken = None if self.finding is None else self.finding.taken
        return None if taken is not None and self.armed and not taken.armed else taken


# Decisions.


@dataclass(frozen=True, slots=True)
class Wait:
    why: str


@dataclass(frozen=True, slots=True)
class Open:
    present: Present


@dataclass(frozen=True, slots=True)
class Take:
    """Take an action: the next one of the ladder, or the last one again."""

    action: EnforcementAction
    present: Present
    expires_at: datetime
    planned_at: datetime | None
    again: bool


@dataclass(frozen=True, slots=True)
class StopMachine:
    """The announced time has come."""

    present: Present


@dataclass(frozen=True, slots=True)
class Close:
    outcome: FindingOutcome
    why: str


Step = Wait | Open | Take | StopMachine | Close


def next_step(case: Case, ladders: Ladders, now: datetime) -> Step:
    """What is done next about a condition of a lease."""
    finding, symptom = case.finding, case.symptom
    if finding is None:
        return _opened(case, symptom, now)
    if finding.taken is not None and finding.taken.ended is ActionEnd.UNDONE:
        return Close(FindingOutcome.UNDONE, "an operator undid it")
    match symptom:
        case Absent() if finding.taken is not None and finding.taken.action is EnforcementAction.CREDIT:
            return _CREDITED
        case Absent(why=why):
            return Close(FindingOutcome.RECOVERED, why)
        case Silent():
            return Close(FindingOutcome.SILENT, "the machine sends no samples any more")
        case Unclear():
            return Wait("it is between its two levels")
        case Present():
            return _present(case, finding, symptom, ladders, now)


_CREDITED = Close(FindingOutcome.CREDITED, "what the broken promise gives back is on the balance")


def _opened(case: Case, symptom: Symptom, now: datetime) -> Step:
    if not isinstance(symptom, Present):
        return Wait("there is nothing to do")
    if case.muted_until is not None and now < case.muted_until:
        return Wait(f"it is left alone until {case.muted_until:%H:%M} UTC")
    return Open(symptom)


def _present(case: Case, finding: Finding, present: Present, ladders: Ladders, now: datetime) -> Step:
    if present.credited:
        done = finding.taken is not None and finding.taken.action is EnforcementAction.CREDIT
        if done:
            return _CREDITED
        return _take(EnforcementAction.CREDIT, present, ladders, now)
    taken = case.taken
    if taken is not None and taken.action is EnforcementAction.SHUTDOWN and taken.ended is None:
        announced = _announced(case, taken, present, now)
        if announced is not None:
            return announced
    wanted = _wanted(case, finding, present, ladders, now) if present.fully else None
    if wanted is not None:
        return _take(wanted, present, ladders, now, notice=ladders.tiers[case.lease.tier].notice_seconds)
    renews = taken is not None and present.may_help(taken.action) and _runs_out(taken, ladders, now)
    if case.detector in _BY_STEPS and taken is not None and renews:
        return _take(taken.action, present, ladders, now, again=True)
    return Wait("its last action has time to help")


def _announced(case: Case, taken: Taken, present: Present, now: datetime) -> Step | None:
    """What becomes of a stop that was announced; None while its time has not come."""
    if taken.armed and not case.armed:
        return Close(
            FindingOutcome.UNDONE, "an operator disarmed the detector, so the machine is not stopped"
        )
    if not may(EnforcementAction.SHUTDOWN, present.basis):
        return Close(
            FindingOutcome.RECOVERED, "its customer does not want the machine to be stopped any more"
        )
    if taken.planned_at is None:
        raise ValueError("a shutdown has a planned time")
    return StopMachine(present) if present.fully and taken.planned_at <= now else None


def _runs_out(taken: Taken, ladders: Ladders, now: datetime) -> bool:
    """Whether the last action is advice that has to be given again, because the condition lasts."""
    soon = taken.expires_at - now <= timedelta(seconds=ladders.renew_seconds)
    return taken.action in ADVICE and (soon or taken.ended is ActionEnd.EXPIRED)


def _wanted(
    case: Case, finding: Finding, present: Present, ladders: Ladders, now: datetime
) -> EnforcementAction | None:
    """The action of the ladder whose turn it is; None when it is not yet that of another one."""
    tier, taken = ladders.tiers[case.lease.tier], case.taken
    rest = [action for action in ladders.of[case.detector] if action is not EnforcementAction.CREDIT]
    ladder = [action for action in rest if may(action, present.basis) and present.may_help(action)]
    position = -1 if taken is None else _position(ladder, taken.action)
    if taken is None or position < 0:
        return ladder[0] if ladder else None
    if case.detector in _BY_STEPS:
        due = now - finding.step_at >= timedelta(seconds=tier.step_seconds)
        return ladder[position + 1] if due and position + 1 < len(ladder) else None
    if present.until is None:
        return None
    notices = (present.until - now) / timedelta(seconds=tier.notice_seconds)
    # The last action is taken one notice before the end, the one before it two notices before, and so on.
    due_position = max((at for at in range(len(ladder)) if at == 0 or notices <= len(ladder) - at), default=0)
    # An end that was postponed, or a stop that was held back, is announced again.
    again = due_position == position and taken.ended is ActionEnd.EXPIRED and taken.action in SIGNALS
    return ladder[due_position] if due_position > position or again else None


_BY_STEPS = frozenset({Detector.MEMORY_PRESSURE, Detector.KV_CACHE_GROWTH, Detector.THROUGHPUT_DEGRADATION})


def _position(ladder: Sequence[EnforcementAction], action: EnforcementAction) -> int:
    """The place of an action, or of the last milder one if the ladder does not have it."""
    return max((at for at, each in enumerate(ladder) if ORDER[each] <= ORDER[action]), default=-1)


def _take(
    action: EnforcementAction,
    present: Present,
    ladders: Ladders,
    now: datetime,
    *,
    again: bool = False,
    notice: int = 0,
) -> Take:
    """`notice`: how many seconds before an interruption it is announced at least."""
    expires_at = now + timedelta(seconds=ladders.lasts[action])
    if action is EnforcementAction.SHUTDOWN:
        planned_at = max(present.until or now, now + timedelta(seconds=notice))
        return Take(action, present, planned_at + timedelta(seconds=ladders.lasts[action]), planned_at, again)
    if action is EnforcementAction.NOTIFY or action is EnforcementAction.CREDIT:
        return Take(action, present, expires_at, present.until, again)
    return Take(action, present, max(expires_at, present.until or expires_at), present.until, again)
