"""What is done about a machine that is not healthy: a ladder of steps, each with a time, and no step without a reason.

    WATCH --> CHALLENGE --> RESET --> REPLACE --> TICKET

A repair is opened when a machine's verdict is no longer healthy, and closed when it is healthy again, or gone. A step
that cannot help is skipped: what its provider lists as down is not challenged, and what cannot be rebooted, or was
taken out by an operator, is not reset. The customer of the machine decides about what interrupts them; `Consent` says
how, by the SLA tier of the lease.

A machine that is a node of a cluster is never rebooted, and nobody is asked about it: its pods have time to go, and its
pool replaces it, as it replaces every node that it loses. Where the tier promises it, the pool gets another node first.
A node whose provider announced to take it back goes at once, because it has half a minute to two minutes.

What a customer hands back is looked at before it goes, so that what is promised does not depend on whether we or they
noticed first.

A step that takes a machine away is held back while too many machines of the same account and region are not healthy,
because the cause is then more likely ours, or concerns the whole provider (law 5). An operator may permit it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.health import RULES, STILL_WORKS, Fault, FaultCode, Verdict
from control_plane.domain.sla import Terms


class RepairStep(StrEnum):
    """A step of the ladder, mildest first."""

    WATCH = "watch"
    """Look at the machine ourselves."""
    CHALLENGE = "challenge"
    """Have its GPUs prove themselves again."""
    RESET = "reset"
    """Reboot it."""
    REPLACE = "replace"
    """Give its customer another machine, or end one that nobody uses."""
    TICKET = "ticket"
    """Nothing is left for us to do: its provider has to repair it, and an operator tells them."""


class RepairOutcome(StrEnum):
    """How a repair was closed."""

    RECOVERED = "recovered"
    REPLACED = "replaced"
    """Its customer got another machine."""
    ENDED = "ended"
    """Nobody used it, and it was ended."""
    GONE = "gone"
    """It ended for another reason."""


class Consent(StrEnum):
    """How the customer of a machine decides about what interrupts them."""

    ASKED = "asked"
    """Nothing happens until they agree: `splitplane lease replace`, or a reboot of their own. So it is where their tier
    promises no replacement. Never for a node, about which its customer cannot decide."""
    NOTIFIED = "notified"
    """It happens when the time of the notice is over."""
    AHEAD = "ahead"
    """As NOTIFIED, but the machine stays until another one is ready."""


def consent_of(terms: Terms | None, *, is_node: bool = False) -> Consent:
    """How the customer of a lease with these terms decides; None when nothing is promised with it."""
    if terms is None or terms.replacement_seconds is None:
        return Consent.NOTIFIED if is_node else Consent.ASKED
    return Consent.AHEAD if terms.replace_before_end else Consent.NOTIFIED


NOTICE: Mapping[Verdict, timedelta] = {
    Verdict.DEGRADED: timedelta(hours=1),
    Verdict.MAINTENANCE_REQUIRED: timedelta(minutes=15),
    Verdict.QUARANTINED: timedelta(minutes=5),
    Verdict.LOST: timedelta(0),
}
"""How long a customer has between the notice and what it announces, by how bad the machine is."""
STEP_LASTS: Mapping[RepairStep, timedelta] = {
    RepairStep.WATCH: timedelta(minutes=2),
    RepairStep.CHALLENGE: timedelta(minutes=10),
    RepairStep.RESET: timedelta(minutes=20),
    RepairStep.REPLACE: timedelta(hours=1),
}
"""How long a step has to help before the next one is taken."""
LOOK_WITHIN = timedelta(minutes=1)
"""How long a machine that was handed back is kept for our look at it."""
SPARE_AHEAD = timedelta(hours=1)
"""How long before planned work another machine is ordered."""
REPLACED_PER_RUN_MAX = 2
"""How many machines of one account and region a run takes away."""
EVICTED_PER_RUN_MAX = 20
"""How many nodes of one account and region a run has leave because their provider announced to take them back."""
SHARE_MAX = 5
"""When more than one in five machines of an account and region are not healthy, none is taken away."""
ALWAYS_ALLOWED = 1
"""So many unhealthy machines are always repaired, so that an account of three machines is not stuck with one."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A machine under repair, with what the decision needs."""

    verdict: Verdict
    fault: Fault | None
    """The worst one; None when it is healthy."""
    step: RepairStep
    step_at: datetime
    """When the step was reached."""
    notified_at: datetime | None
    """When its customer was told what comes next; None while they were not."""
    used: bool
    """Whether a customer was admitted to it."""
    is_node: bool
    """Whether it is a node of a cluster: its pods go by themselves, and its pool replaces it."""
    consent: Consent
    evicted: bool
    """Whether its provider announced to take it back."""
    agreed: bool
    """Whether the customer asked for another machine."""
    look_awaited: bool
    """Whether they did just now, and we have not looked at it since."""
    spare_ready: bool
    """Whether another machine is ready for its customer, or its pool has as many ready nodes without it."""
    spare_wanted: bool
    """Whether another one is made ready, or is ready."""
    challenged: bool
    """Whether its GPUs are challenged at all."""
    was_reset: bool
    """Whether it was rebooted since the step was reached."""
    reboots: bool
    """Whether its provider can reboot it."""
    not_before: datetime | None
    """For when an operator or its provider planned work on it. Nothing interrupts its customer before. For a
    node, when its pods have to begin to go so that all of them are gone by then."""


@dataclass(frozen=True, slots=True)
class Wait:
    why: str


@dataclass(frozen=True, slots=True)
class Climb:
    """Go on to another step."""

    step: RepairStep
    why: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell the customer what comes next, and when."""

    step: RepairStep
    at: datetime
    """When it comes; what is only recommended has the time of the notice."""
    recommended: bool
    """Whether the customer has to agree."""


@dataclass(frozen=True, slots=True)
class OrderSpare:
    """Have another machine, or another node of the pool, made ready."""


@dataclass(frozen=True, slots=True)
class DropSpare:
    """Have no other machine, or other node of the pool, ready any more: the work was put off."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Reboot the machine."""


@dataclass(frozen=True, slots=True)
class TakeAway:
    """Give the customer another machine in place of this one, or end one that nobody uses."""

    why: str


@dataclass(frozen=True, slots=True)
class Close:
    """The machine is healthy again."""


Action = Wait | Climb | Notify | OrderSpare | DropSpare | Reset | TakeAway | Close


def next_action(facts: Facts, now: datetime) -> Action:
    """What is done next about a machine."""
    if facts.verdict is Verdict.HEALTHY or facts.fault is None:
        return Close()
    decided = _at_once(facts, facts.fault, now) if facts.used else None
    if decided is not None:
        return decided
    others = _decided_by_others(facts, facts.fault)
    if others is not None:
        return Wait(others)
    return _on_step(facts, facts.fault, now)


def _at_once(facts: Facts, fault: Fault, now: datetime) -> Action | None:
    """What does not wait for a step of the ladder."""
    if facts.agreed and facts.look_awaited:
        return Wait("we look at it before it goes, because its customer handed it back")
    if facts.agreed:
        return _replacement(facts, fault, now)
    if facts.evicted and facts.is_node:
        return TakeAway("its provider takes it back in a moment, so its pods go now")
    return None


def _on_step(facts: Facts, fault: Fault, now: datetime) -> Action:
    lasted = now - facts.step_at
    match facts.step:
        case RepairStep.WATCH:
            return _watched(facts, fault, lasted)
        case RepairStep.CHALLENGE:
            return _challenged(facts, fault, lasted)
        case RepairStep.RESET:
            return _reset(facts, fault, now)
        case RepairStep.REPLACE:
            return _replacement(facts, fault, now)
        case RepairStep.TICKET:
            return Wait("its provider has to repair it")


def _decided_by_others(facts: Facts, fault: Fault) -> str | None:
    """What decides about the machine besides a repair; None when nothing does."""
    if fault.code is FaultCode.UNDER_MAINTENANCE and not facts.used:
        return "an operator took it out"
    if fault.code is FaultCode.PROOF_FAILED:
        return "its next challenge decides about it"
    return "its provider's lists decide about it" if facts.verdict is Verdict.LOST else None


def _watched(facts: Facts, fault: Fault, lasted: timedelta) -> Action:
    if fault.confirmed_at is None:
        if lasted < STEP_LASTS[RepairStep.WATCH]:
            return Wait("we look at it ourselves")
        if RULES[fault.code].proves_again and facts.challenged:
            return Climb(
                RepairStep.CHALLENGE, "only the machine says so, and its GPUs can prove the contrary"
            )
        return Wait("only the machine says so, and what we saw does not confirm it")
    if facts.verdict is Verdict.DEGRADED:
        return _for_degraded(fault, lasted)
    if facts.verdict is Verdict.QUARANTINED:
        return Climb(RepairStep.REPLACE, "we saw the fault ourselves, and it takes away what was sold")
    if fault.code in STILL_WORKS:
        return Climb(RepairStep.REPLACE, "only another machine is spared it")
    return Climb(RepairStep.RESET, "we saw the fault ourselves, and a reset may end it")


def _for_degraded(fault: Fault, lasted: timedelta) -> Action:
    if fault.code is FaultCode.HANDED_BACK:
        return Climb(RepairStep.REPLACE, "its customer handed it back")
    if fault.code in (FaultCode.MEMORY_REPAIR_PENDING, FaultCode.RESET_ADVISED):
        return Climb(RepairStep.RESET, "a reset repairs it")
    if lasted < NOTICE[Verdict.DEGRADED]:
        return Wait("it works, and may recover by itself")
    return Climb(RepairStep.REPLACE, "it has not recovered by itself")


def _challenged(facts: Facts, fault: Fault, lasted: timedelta) -> Action:
    if fault.confirmed_at is not None or facts.verdict is not Verdict.DEGRADED:
        return Climb(RepairStep.WATCH, "the fault is confirmed")
    if lasted < STEP_LASTS[RepairStep.CHALLENGE]:
        return Wait("its GPUs are challenged")
    return Wait("it did not fail a challenge, and we did not see the fault ourselves")


def _reset(facts: Facts, fault: Fault, now: datetime) -> Action:
    skipped = _why_not_reset(facts, fault)
    if skipped is not None:
        return Climb(RepairStep.REPLACE, skipped)
    if now - facts.step_at >= STEP_LASTS[RepairStep.RESET] and not _waits_for_consent(facts):
        return Climb(RepairStep.REPLACE, "the reset did not end the fault")
    if not facts.used:
        return Climb(RepairStep.REPLACE, "nobody uses it")
    if facts.was_reset:
        return Wait("it was rebooted, and we look whether that ended the fault")
    if facts.notified_at is None:
        return _notice(facts, now)
    if facts.consent is Consent.ASKED:
        return Wait("its customer was asked to reboot it")
    if now - facts.notified_at < NOTICE[facts.verdict]:
        return Wait("its customer was told that it will be rebooted")
    return Reset()


def _why_not_reset(facts: Facts, fault: Fault) -> str | None:
    if facts.verdict is Verdict.QUARANTINED or fault.code in STILL_WORKS:
        return "no reset ends what it has now"
    if facts.is_node:
        return "it is a node of a cluster, which its pool replaces"
    return None if facts.reboots else "its provider cannot reboot it"


def _waits_for_consent(facts: Facts) -> bool:
    return facts.used and facts.consent is Consent.ASKED


def _notice(facts: Facts, now: datetime) -> Notify:
    recommended = facts.consent is Consent.ASKED
    at = now if recommended else max(now + NOTICE[facts.verdict], facts.not_before or now)
    return Notify(facts.step, at, recommended)


def _replacement(facts: Facts, fault: Fault, now: datetime) -> Action:
    why = f"{RULES[fault.code].words}: {fault.detail}"
    if not facts.used:
        return TakeAway(why)
    if facts.agreed:
        return TakeAway(f"its customer asked for another machine; {why}")
    if facts.notified_at is None:
        return _notice(facts, now)
    if facts.consent is Consent.ASKED:
        # What works needs no repair.
        if now - facts.step_at >= STEP_LASTS[RepairStep.REPLACE] and fault.code not in STILL_WORKS:
            return Climb(RepairStep.TICKET, "its customer has not asked for another machine")
        return Wait("its customer was asked whether they want another machine")
    return _announced_replacement(facts, facts.notified_at, why, now)


def _announced_replacement(facts: Facts, notified_at: datetime, why: str, now: datetime) -> Action:
    spare_due = facts.not_before is None or now >= facts.not_before - SPARE_AHEAD
    if facts.consent is Consent.AHEAD and not facts.spare_ready and spare_due:
        return OrderSpare()
    if facts.spare_wanted and not spare_due:
        return DropSpare()
    if now < max(notified_at + NOTICE[facts.verdict], facts.not_before or notified_at):
        return Wait("its customer was told that it will be replaced")
    return TakeAway(why)


def held_back(
    *, unhealthy: int, machines: int, taken: int, dry_run: bool, permitted: bool, evicted: bool = False
) -> str | None:
    """Why no machine is taken away now; None when one may be.

    `unhealthy` of `machines` machines of the account and region are not healthy, this one included; `taken` were taken
    away in this run. One that is `evicted` goes in any case, and often together with others: that says nothing of us.
    """
    if dry_run:
        return "the account is not armed, so this is a dry run"
    if taken >= (EVICTED_PER_RUN_MAX if evicted else REPLACED_PER_RUN_MAX):
        return f"{taken} machines were taken away in this run"
    if evicted:
        return None
    allowed = max(ALWAYS_ALLOWED, -(-machines // SHARE_MAX))
    if unhealthy > allowed and not permitted:
        return f"{unhealthy} of {machines} machines there are not healthy, more than {allowed}; an operator can permit"
    return None
