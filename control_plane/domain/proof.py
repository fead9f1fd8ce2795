"""What follows from a GPU proof: a machine's tier, when it is challenged next, and when it is terminated.

A proof is evidence and decides nothing by itself. This is what it leads to:

    starting   PASSED       the machine is verified, if the proof makes the tier that was ordered
               FAILED       the first time, another challenge at once; the second time, another machine
               EMULATED     another machine, at once: the prover says itself that it is an emulation
               UNANSWERED   another challenge, until the time for setup is over
    in use     PASSED       the next challenge, at an unpredictable time. If the attestation that was ordered is
                            missing: another challenge soon; the second time, the machine is terminated
               FAILED       the first time, another challenge soon; the second time in a row, the machine is
                            terminated, unless law 5 protects it (`held_back`)
               UNANSWERED   another challenge; several in a row count as one failure
               void         the customer's own work got in the way: it does not count and is repeated later

Failures are "in a row" when no challenge was passed between them; unanswered ones in between change nothing.
Billing pauses from the first failure until a second one or a pass. When no other challenge can be made for
DOUBT_LASTS, because the GPUs are busy or the machine is unreachable, billing resumes.

docs/gpu-proof.md explains the proof itself. The loops in reconciler/loops/proof challenge the machines.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.failure import FailReason

STRIKES_MAX = 2
"""A machine with this many failures in a row is terminated."""
UNANSWERED_PER_STRIKE = 4
"""This many unanswered challenges without a pass between them count as one failure."""
AGAIN_WHILE_STARTING = timedelta(seconds=15)
AGAIN_WHILE_RUNNING = timedelta(minutes=5)
BUSY_POSTPONED = timedelta(minutes=15)
"""How long until a machine whose customer uses its GPUs is looked at again."""
DOUBT_LASTS = timedelta(minutes=30)
"""How long billing pauses after a failure while no other challenge can be made."""
IDLE_PERCENT_MAX = 2
"""Utilisation up to which a GPU without processes counts as idle, percent."""
IDLE_MEAN = timedelta(hours=4)
IDLE_MIN = timedelta(minutes=20)
IDLE_MAX = timedelta(hours=12)
CLAIMED_APART = timedelta(minutes=10)
"""How long after a challenge what a machine says about itself leads to the next one at the earliest. A machine may say
what it likes, as often as it likes, and each challenge costs our verifier time."""
HINTED_WITHIN = timedelta(minutes=30)
"""How soon a machine that showed signs of sharing or throttling is challenged again."""
FRESH_FOR = timedelta(days=7)
"""How long a pass counts. A machine whose GPUs are busy for longer is not challenged, and loses its tier."""
WATCHED_FOR = timedelta(days=7)
WATCHED_PASSES_MIN = 5
FORGOTTEN_AFTER = timedelta(days=15)
"""The record of a machine that was not challenged for longer than this starts anew, without the old passes."""

FAILING_WINDOW = timedelta(hours=1)
FAILING_MACHINES_MAX = 3
"""When more machines of one account than this fail within the window, the fault is probably ours."""
ENDED_PER_RUN_MAX = 2
"""How many machines of one account one activation may terminate because of their proof."""
HELD_AGAIN = timedelta(minutes=15)
"""How long until a machine that failed and is kept for now is challenged again."""
HELD_FOR_OTHERS_AGAIN = timedelta(minutes=1)
"""The same, when it is kept only because others were terminated in the same run."""


class Tier(StrEnum):
    """How much is known about a machine's GPUs, least first."""

    LISTED = "listed"
    """We know only what the machine reports about itself."""
    PROVEN = "proven"
    """All GPUs passed a challenge lately, and none failed since."""
    WATCHED = "watched"
    """Proven, and passed several challenges over at least a week."""
    ATTESTED = "attested"
    """Proven, and we verified a report that the chip's own key signed."""


DEMANDED = frozenset({Tier.LISTED, Tier.PROVEN, Tier.ATTESTED})
"""What a SKU may demand. A new machine cannot be `watched`: that takes a week."""


def at_least(tier: Tier, demanded: Tier) -> bool:
    order = list(Tier)
    return order.index(tier) >= order.index(demanded)


def challenged(demanded: Tier) -> bool:
    """Whether machines that have to reach this tier are challenged at all."""
    return demanded is not Tier.LISTED


class Occasion(StrEnum):
    """Why a machine is challenged. A test keeps these words equal to the data plane's."""

    START = "start"
    RECHECK = "recheck"
    IDLE = "idle"
    END = "end"


class ProofOutcome(StrEnum):
    """The outcome of a challenge. A test keeps these words equal to the data plane's."""

    PASSED = "passed"
    FAILED = "failed"
    UNANSWERED = "unanswered"
    EMULATED = "emulated"


COUNTED_AS_FAILURE = frozenset({ProofOutcome.FAILED, ProofOutcome.EMULATED})
"""Outcomes that are a strike at once."""


class OwnCode(StrEnum):
    """Codes of our own findings, which do not come from the machine's answers."""

    SOLD_TWICE = "gpu_sold_twice"
    SHOWN_ELSEWHERE = "gpu_shown_elsewhere"
    DISTURBED = "disturbed"
    BUSY_UNCLAIMED = "busy_without_customer"
    NO_HEALTH = "no_health"
    NO_PROVER = "no_prover"
    NO_END = "no_end"


OWN_CODES = {
    OwnCode.SOLD_TWICE: "Another live machine of this account has reported the same GPU. It fails.",
    OwnCode.SHOWN_ELSEWHERE: "A live machine of another account has reported the same GPU. It fails, without blame.",
    OwnCode.DISTURBED: "The customer began to compute during the challenge, which therefore does not count.",
    OwnCode.BUSY_UNCLAIMED: "The GPUs are in use although no customer has been admitted to the machine. Unanswered.",
    OwnCode.NO_HEALTH: "The machine did not report whether its GPUs are in use, so it was not challenged. Unanswered.",
    OwnCode.NO_PROVER: "The prover could not be started on the machine. Unanswered.",
    OwnCode.NO_END: "The challenge as a whole took longer than its limit. Unanswered.",
}

VOID = frozenset({OwnCode.DISTURBED.value, "memory_in_use"})
"""Codes of unanswered challenges that do not count, because the customer's own work got in the way."""


def settled(outcome: ProofOutcome, source: str) -> ProofOutcome:
    """The outcome that counts. A pass counts only when it comes from CUDA; any other is an emulation's."""
    return ProofOutcome.EMULATED if outcome is ProofOutcome.PASSED and source != "cuda" else outcome


@dataclass(frozen=True, slots=True)
class Result:
    """The part of a challenge that decisions need."""

    occasion: Occasion
    outcome: ProofOutcome
    """As `settled` returns it."""
    at: datetime
    code: str | None = None
    """The code of the first finding."""
    why: str | None = None
    hinted: bool = False
    attested: bool = False

    @property
    def void(self) -> bool:
        return self.outcome is ProofOutcome.UNANSWERED and self.code in VOID


@dataclass(frozen=True, slots=True)
class Record:
    """The summary of one machine's challenges."""

    passes: int = 0
    first_passed_at: datetime | None = None
    last_passed_at: datetime | None = None
    attested: bool = False
    """Whether the last pass came with an attestation."""
    failed: int = 0
    """Failures since the last pass, including answers of an emulation."""
    unanswered: int = 0
    """Unanswered challenges since the last pass, without void ones."""
    last_at: datetime | None = None
    """When the machine was last challenged, without void challenges."""

    @property
    def strikes(self) -> int:
        return self.failed + self.unanswered // UNANSWERED_PER_STRIKE

    @property
    def confirmed(self) -> bool:
        """Whether the machine failed, and another challenge confirmed it."""
        return self.strikes >= STRIKES_MAX

    @property
    def quiet(self) -> bool:
        """Whether no challenge failed or went unanswered since the last pass."""
        return self.failed == 0 and self.unanswered == 0

    def after(self, result: Result) -> "Record":
        """The record with one more challenge.

        Void challenges and those at the end of a claim do not change it: they say nothing about the GPUs that a
        customer gets.
        """
        if result.void or result.occasion is Occasion.END:
            return self
        before = self if self._remembered(result.at) else Record()
        match result.outcome:
            case ProofOutcome.PASSED:
                first = before.first_passed_at or result.at
                return Record(before.passes + 1, first, result.at, result.attested, last_at=result.at)
            case ProofOutcome.UNANSWERED:
                return replace(before, unanswered=before.unanswered + 1, last_at=result.at)
            case ProofOutcome.FAILED | ProofOutcome.EMULATED:
                return replace(before, failed=before.failed + 1, last_at=result.at)

    def _remembered(self, now: datetime) -> bool:
        return self.last_at is None or now - self.last_at <= FORGOTTEN_AFTER


def tier(record: Record, now: datetime) -> Tier:
    """The tier of a machine with this record at `now`."""
    first, last = record.first_passed_at, record.last_passed_at
    if first is None or last is None or record.strikes or now - last > FRESH_FOR:
        return Tier.LISTED
    if record.attested:
        return Tier.ATTESTED
    if record.passes >= WATCHED_PASSES_MIN and last - first >= WATCHED_FOR:
        return Tier.WATCHED
    return Tier.PROVEN


@dataclass(frozen=True, slots=True)
class Load:
    """What one GPU does, as the machine reports it; None for what it does not report."""

    lost: bool
    processes: int | None
    utilisation_percent: int | None


def busy(gpus: Sequence[Load]) -> str | None:
    """Why a customer's machine must not be disturbed now; None when its GPUs are idle.

    A machine that only claims to be busy gains little: it is not challenged, and loses its tier in a week. A GPU that
    is lost, or that reports nothing, does not prevent a challenge.
    """
    for index, gpu in enumerate(gpus):
        if gpu.lost:
            continue
        if gpu.processes:
            return f"GPU {index} has {gpu.processes} processes"
        if gpu.utilisation_percent is not None and gpu.utilisation_percent > IDLE_PERCENT_MAX:
            return f"GPU {index} is at {gpu.utilisation_percent} %"
    return None


# What to do


@dataclass(frozen=True, slots=True)
class Keep:
    """The machine passed and has the tier that was ordered."""

    tier: Tier
    again: timedelta
    """Until the next challenge."""


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing is concluded yet: challenge the machine again."""

    after: timedelta
    suspect: bool | None
    """Whether the machine is suspect, so that billing pauses; None leaves that as it was."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The machine has to be terminated."""

    reason: FailReason
    why: str


def while_starting(record: Record, result: Result, demanded: Tier, *, chance: float) -> Keep | Again | Drop:
    """What a challenge means for a machine that is being set up. `record` is the record before the challenge.

    `chance` is a random number, uniform in [0, 1).
    """
    after = record.after(result)
    match result.outcome:
        case ProofOutcome.PASSED:
            reached = tier(after, result.at)
            if at_least(reached, demanded):
                return Keep(reached, _next(result, chance))
            return Drop(FailReason.PROOF_FAILED, _tier_too_low(reached, demanded))
        case ProofOutcome.EMULATED:
            return Drop(FailReason.PROOF_EMULATED, "an emulation answered; it never counts as proof")
        case ProofOutcome.FAILED if after.failed >= STRIKES_MAX:
            return Drop(FailReason.PROOF_FAILED, _failed_again(result))
        case ProofOutcome.FAILED | ProofOutcome.UNANSWERED:
            return Again(AGAIN_WHILE_STARTING, suspect=False)


def while_running(record: Record, result: Result, demanded: Tier, *, chance: float) -> Keep | Again | Drop:
    """What a challenge means for a verified machine. `record` is the record before the challenge.

    `chance` is a random number, uniform in [0, 1).
    """
    after = record.after(result)
    if result.outcome is ProofOutcome.PASSED:
        reached = tier(after, result.at)
        if at_least(reached, demanded):
            return Keep(reached, _next(result, chance))
        if record.attested:
            return Again(AGAIN_WHILE_RUNNING, suspect=False)
        return Drop(FailReason.PROOF_FAILED, _tier_too_low(reached, demanded))
    if result.void:
        return Again(BUSY_POSTPONED, suspect=None)
    if after.confirmed:
        return Drop(FailReason.PROOF_FAILED, _failed_again(result))
    return Again(AGAIN_WHILE_RUNNING, suspect=after.strikes > 0)


def doubt_lapses(record: Record, since: datetime | None, now: datetime) -> bool:
    """Whether billing resumes after a failure, because no other challenge could be made for DOUBT_LASTS.

    `since` is when the machine became suspect; None when it is not.
    """
    return since is not None and now - max(since, record.last_at or since) >= DOUBT_LASTS


def next_occasion(record: Record) -> Occasion:
    """Why a verified machine is challenged now."""
    return Occasion.IDLE if record.quiet else Occasion.RECHECK


def idle_wait(chance: float) -> timedelta:
    """How long until the next challenge of an idle machine. `chance` is a random number, uniform in [0, 1).

    The wait is exponential, so the time since the last challenge does not help to predict the next one.
    """
    drawn = -math.log1p(-chance) * IDLE_MEAN
    return min(max(drawn, IDLE_MIN), IDLE_MAX)


def _next(result: Result, chance: float) -> timedelta:
    drawn = idle_wait(chance)
    return min(drawn, HINTED_WITHIN) if result.hinted else drawn


def _tier_too_low(reached: Tier, demanded: Tier) -> str:
    return f"tier_too_low: it is {reached}; {demanded} was sold"


def _failed_again(result: Result) -> str:
    finding = f"{result.code}: {result.why}" if result.code else "no answer"
    return f"the GPU proof was failed again, {finding}"


@dataclass(frozen=True, slots=True)
class Held:
    """The machine should be terminated, and law 5 keeps it for now."""

    why: str
    again: timedelta = HELD_AGAIN


def held_back(*, failing: int, ended: int, dry_run: bool, permitted: bool) -> Held | None:
    """Why a verified machine that failed is kept for now (law 5); None when it may be terminated.

    `failing` counts the machines of its account that failed within FAILING_WINDOW, including this one, and
    `ended` those that this activation has terminated. `permitted` says that an operator found the provider at
    fault for the many failures, and allows the terminations.
    """
    if dry_run:
        return Held("dry run: it would be terminated")
    if failing > FAILING_MACHINES_MAX and not permitted:
        minutes = int(FAILING_WINDOW.total_seconds() // 60)
        return Held(
            f"{failing} machines of this account failed within {minutes} min; more than"
            f" {FAILING_MACHINES_MAX} look like a mistake of ours, so none is terminated until fewer fail"
            " or an operator permits it"
        )
    if ended >= ENDED_PER_RUN_MAX:
        return Held(
            f"{ended} machines were terminated in this run; more wait for the next", HELD_FOR_OTHERS_AGAIN
        )
    return None
