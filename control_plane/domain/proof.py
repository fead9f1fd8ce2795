"""What follows from a GPU proof: which tier a machine has, when it is challenged, and when it has to go.

A proof is evidence and decides nothing by itself. Here is what it leads to:

    starting   PASSED       ready, if that makes the tier that was sold
               FAILED       once: again at once. Twice: another machine
               EMULATED     another machine, at once: an emulation says of itself that it is none
               UNANSWERED   again, until the time for setting the machine up is over
    running    PASSED       the next challenge, at a time nobody can foresee. Without the attestation that was sold:
                            again soon, and the second time it is ended like one that failed
               FAILED       once: again soon. Twice in a row: the machine is ended, if law 5 lets us
               UNANSWERED   again; several in a row, while the machine can be reached, are one failure
               void         the customer's own work was in its way: it says nothing, and is made again later

Silence between two failures changes nothing: "in a row" means that no challenge was passed in between.
From the first failure the bill waits, for a second one or a pass. If no look can be had for DOUBT_LASTS,
because the GPUs are busy or the machine is out of reach, it waits no longer: who computes, pays.
The arithmetic of the proof itself is in docs/gpu-proof.md; who speaks to machines is in the loops.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.failure import FailReason

STRIKES_MAX = 2
"""Failures in a row that end a machine."""
UNANSWERED_PER_STRIKE = 4
"""Unanswered challenges, with no pass between them, that count as one failure."""
AGAIN_WHILE_STARTING = timedelta(seconds=15)
AGAIN_WHILE_RUNNING = timedelta(minutes=5)
BUSY_POSTPONED = timedelta(minutes=15)
"""A customer who computes is not disturbed; when to look again."""
DOUBT_LASTS = timedelta(minutes=30)
"""How long a failure holds the bill while no other look can be had."""
IDLE_PERCENT_MAX = 2
"""Utilisation up to which a GPU without processes counts as idle, percent."""
IDLE_MEAN = timedelta(hours=4)
IDLE_MIN = timedelta(minutes=20)
IDLE_MAX = timedelta(hours=12)
HINTED_WITHIN = timedelta(minutes=30)
"""How soon a machine is challenged again that showed signs of sharing or throttling."""
FRESH_FOR = timedelta(days=7)
"""How long a pass counts. GPUs that are busy for longer are not challenged, and so not proven any more."""
WATCHED_FOR = timedelta(days=7)
WATCHED_PASSES_MIN = 5
FORGOTTEN_AFTER = timedelta(days=15)
"""A machine that was not challenged for longer begins its record anew: old passes make no tier."""

FAILING_WINDOW = timedelta(hours=1)
FAILING_MACHINES_MAX = 3
"""More machines of one account than this failing within the window look like our own mistake."""
ENDED_PER_RUN_MAX = 2
"""Machines of one account that one activation ends because of their proof."""
HELD_AGAIN = timedelta(minutes=15)
"""When a machine that should go and may not is challenged again."""
HELD_FOR_OTHERS_AGAIN = timedelta(minutes=1)
"""The same, if it may not only because others went in the same run."""


class Tier(StrEnum):
    """How much is known of a machine's GPUs, least first."""

    LISTED = "listed"
    """The machine's own word."""
    PROVEN = "proven"
    """All GPUs passed a challenge lately, and failed none since."""
    WATCHED = "watched"
    """Proven, and passed several challenges over at least a week."""
    ATTESTED = "attested"
    """Proven, and a report signed by the chip's key was checked on our side."""


DEMANDED = frozenset({Tier.LISTED, Tier.PROVEN, Tier.ATTESTED})
"""What a SKU may demand. Not `watched`: no machine has a week behind it when it is leased."""


def at_least(tier: Tier, demanded: Tier) -> bool:
    order = list(Tier)
    return order.index(tier) >= order.index(demanded)


def challenged(demanded: Tier) -> bool:
    """Whether machines of a SKU that demands this are challenged at all."""
    return demanded is not Tier.LISTED


class Occasion(StrEnum):
    """Why a machine is challenged. The same words as the data plane's; a test holds them together."""

    START = "start"
    RECHECK = "recheck"
    IDLE = "idle"
    END = "end"


class ProofOutcome(StrEnum):
    """What came of a challenge. The same words as the data plane's."""

    PASSED = "passed"
    FAILED = "failed"
    UNANSWERED = "unanswered"
    EMULATED = "emulated"


class OwnCode(StrEnum):
    """Codes of findings that are ours and not the conversation's."""

    SOLD_TWICE = "gpu_sold_twice"
    SHOWN_ELSEWHERE = "gpu_shown_elsewhere"
    DISTURBED = "disturbed"
    NO_HEALTH = "no_health"
    NO_PROVER = "no_prover"
    NO_END = "no_end"


OWN_CODES = {
    OwnCode.SOLD_TWICE: "A machine of this account that is leased now has shown the same GPU. It fails.",
    OwnCode.SHOWN_ELSEWHERE: "A machine of another account has shown the same GPU. It fails, and nobody is blamed.",
    OwnCode.DISTURBED: "The customer began to compute while the challenge went on. It counts for nothing.",
    OwnCode.NO_HEALTH: "Whether the GPUs are in use could not be read, so they were not challenged. A silence.",
    OwnCode.NO_PROVER: "The prover could not be started on the machine. A silence.",
    OwnCode.NO_END: "The challenge as a whole took longer than any may. A silence.",
}

VOID = frozenset({OwnCode.DISTURBED.value, "memory_in_use"})
"""Codes of unanswered challenges that count for nothing: the customer's own work was in the way."""


def settled(outcome: ProofOutcome, source: str) -> ProofOutcome:
    """The outcome as it counts: only CUDA passes, whoever says otherwise."""
    return ProofOutcome.EMULATED if outcome is ProofOutcome.PASSED and source != "cuda" else outcome


@dataclass(frozen=True, slots=True)
class Result:
    """One challenge, as far as a decision needs it."""

    outcome: ProofOutcome
    """Settled."""
    at: datetime
    code: str | None = None
    """Of the first finding."""
    why: str | None = None
    hinted: bool = False
    attested: bool = False

    @property
    def void(self) -> bool:
        return self.outcome is ProofOutcome.UNANSWERED and self.code in VOID


@dataclass(frozen=True, slots=True)
class Record:
    """What the challenges of one machine add up to."""

    passes: int = 0
    first_passed_at: datetime | None = None
    last_passed_at: datetime | None = None
    attested: bool = False
    """Whether the last pass came with an attestation."""
    failed: int = 0
    """Failures since the last pass, answers of an emulation among them."""
    unanswered: int = 0
    """Unanswered challenges since the last pass, void ones left out."""
    last_at: datetime | None = None
    """When it was challenged last, void challenges left out."""

    @property
    def strikes(self) -> int:
        return self.failed + self.unanswered // UNANSWERED_PER_STRIKE

    @property
    def confirmed(self) -> bool:
        """It failed, and a second look found the same."""
        return self.strikes >= STRIKES_MAX

    @property
    def quiet(self) -> bool:
        """Nothing is held against it since it last passed."""
        return self.failed == 0 and self.unanswered == 0

    def after(self, result: Result) -> "Record":
        """The record with one more challenge. The machine's row keeps it, so that nothing has to be added up."""
        if result.void:
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
    """What a machine with this record is at `now`."""
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
    """What one GPU does, by the machine's word. None where it does not say."""

    lost: bool
    processes: int | None
    utilisation_percent: int | None


def busy(gpus: Sequence[Load]) -> str | None:
    """Why a machine is not to be disturbed; None when its GPUs are idle.

    A machine that only claims to be busy is not challenged either, and stops being proven in a week. A GPU that is
    lost, or of which nothing is known, does not keep us from asking.
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
    """All is well."""

    tier: Tier
    again: timedelta
    """Until the next challenge."""


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing is concluded yet: challenge it again."""

    after: timedelta
    suspect: bool | None
    """Whether something is held against it: the bill waits at the moment this began. None: as before."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The machine has to go."""

    reason: FailReason
    why: str


def while_starting(record: Record, result: Result, demanded: Tier, *, chance: float) -> Keep | Again | Drop:
    """What a challenge means for a machine that is being set up. `record` is what was known before it.

    `chance` is uniform in [0, 1).
    """
    after = record.after(result)
    match result.outcome:
        case ProofOutcome.PASSED:
            shown = tier(after, result.at)
            if at_least(shown, demanded):
                return Keep(shown, _next(result, chance))
            return Drop(FailReason.PROOF_FAILED, _too_low(shown, demanded))
        case ProofOutcome.EMULATED:
            return Drop(FailReason.PROOF_EMULATED, "an emulation answered; it never counts as proof")
        case ProofOutcome.FAILED if after.failed >= STRIKES_MAX:
            return Drop(FailReason.PROOF_FAILED, _told(result))
        case ProofOutcome.FAILED | ProofOutcome.UNANSWERED:
            return Again(AGAIN_WHILE_STARTING, suspect=False)


def makes(result: Result, demanded: Tier) -> bool:
    """Whether a machine that shows this while it is being set up is what was sold."""
    return isinstance(while_starting(Record(), result, demanded, chance=0.0), Keep)


def while_running(record: Record, result: Result, demanded: Tier, *, chance: float) -> Keep | Again | Drop:
    """What a challenge means for a machine that a customer uses. `record` is what was known before it."""
    after = record.after(result)
    if result.outcome is ProofOutcome.PASSED:
        shown = tier(after, result.at)
        if at_least(shown, demanded):
            return Keep(shown, _next(result, chance))
        if record.attested:
            return Again(AGAIN_WHILE_RUNNING, suspect=False)
        return Drop(FailReason.PROOF_FAILED, _too_low(shown, demanded))
    if result.void:
        return Again(BUSY_POSTPONED, suspect=None)
    if after.confirmed:
        return Drop(FailReason.PROOF_FAILED, _told(result))
    return Again(AGAIN_WHILE_RUNNING, suspect=after.strikes > 0)


def doubt_lapses(record: Record, since: datetime | None, now: datetime) -> bool:
    """Whether a failure holds the bill no longer, because no other look could be had. `since` is when doubt began."""
    return since is not None and now - max(since, record.last_at or since) >= DOUBT_LASTS


def next_occasion(record: Record) -> Occasion:
    """Why a running machine is challenged now."""
    return Occasion.IDLE if record.quiet else Occasion.RECHECK


def idle_wait(chance: float) -> timedelta:
    """How long until the next challenge of an idle machine, for a `chance` that is uniform in [0, 1).

    Exponential: that none came for long says nothing about when the next one comes.
    """
    drawn = -math.log1p(-chance) * IDLE_MEAN
    return min(max(drawn, IDLE_MIN), IDLE_MAX)


def _next(result: Result, chance: float) -> timedelta:
    drawn = idle_wait(chance)
    return min(drawn, HINTED_WITHIN) if result.hinted else drawn


def _too_low(shown: Tier, demanded: Tier) -> str:
    return f"tier_too_low: it is {shown}; {demanded} was sold"


def _told(result: Result) -> str:
    said = f"{result.code}: {result.why}" if result.code else "no answer"
    return f"the GPU proof was failed again, {said}"


@dataclass(frozen=True, slots=True)
class Held:
    """The machine should go, and law 5 keeps it for now."""

    why: str
    again: timedelta = HELD_AGAIN


def held_back(*, failing: int, ended: int, dry_run: bool, permitted: bool) -> Held | None:
    """Why a running machine that failed is not ended now (law 5); None when it may be.

    `failing` counts the machines of its account that failed within FAILING_WINDOW, this one included;
    `ended` those that this activation has ended. `permitted` is an operator's word that the many failures
    are the provider's fault and not ours.
    """
    if dry_run:
        return Held("dry run: it would be ended")
    if failing > FAILING_MACHINES_MAX and not permitted:
        minutes = int(FAILING_WINDOW.total_seconds() // 60)
        return Held(
            f"{failing} machines of this account failed within {minutes} min; more than"
            f" {FAILING_MACHINES_MAX} look like a mistake of ours, so none is ended until fewer do"
            " or an operator permits it"
        )
    if ended >= ENDED_PER_RUN_MAX:
        return Held(f"{ended} machines were ended in this run; more wait for the next", HELD_FOR_OTHERS_AGAIN)
    return None
