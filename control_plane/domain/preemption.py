"""When an interruptible lease yields its machine to a lease whose readiness is promised, and which one does.

    NOTIFIED --time is up--> INTERRUPTED --machine gone--> ORDERED --claimed--> SERVED
        `--not needed--> WITHDRAWN   `--------- too late -----'----------------> IN_VAIN

A lease is in need when it waits, no offer and no machine of a pool can serve it, and a promise about the time of its
machine would be broken. A preemption takes the machine of one interruptible lease back, which is then overwritten and
ended like every other one. Its provider has capacity for one machine again, which is ordered in its place, reserved for
the lease in need. The machine itself serves nobody a second time (docs/decisions/0102).

Whose machine is taken back is the lease with the lowest harm, in GPU-seconds:

    harm = GPUs x (seconds since it runs, until the interruption
                   + 3,600 s for each interruption of the lease in the last 7 days
                   + 900 s for each interruption of another lease of the customer in the last 7 days)

Leases with a lower priority go first, whatever their harm. Among equals, the one that runs for the shortest time
does. Everything here is a function of its arguments, so recorded facts give the same decision again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.request import PRIORITY_DEFAULT
from control_plane.domain.sla import SlaTier, Terms

NOTICE = timedelta(minutes=2)
"""How long before the interruption its customer is told. AWS tells of a spot interruption so long before."""
PATIENCE = timedelta(minutes=1)
"""So long a lease waits at least, because offers are refreshed every 30 s."""
TAKES = NOTICE + timedelta(minutes=9)
"""From the notice to a verified machine: the notice, two minutes to overwrite GPU memory, the end of the old machine,
the order and the start of the next one, and a minute for loops that come late."""
LASTS_MAX = timedelta(minutes=30)
"""So long after the interruption a preemption ends in vain."""
STARTED_WITHIN = timedelta(seconds=10)
STARTED_MAX = 2
"""How many notices are given in any STARTED_WITHIN, by all workers of an installation together. A wrong price or limit
that makes every lease wait looks like more, and somebody can disarm preemption meanwhile."""
OPEN_PER_PLACE_MAX = 5
"""How many preemptions are under way at a time in one region of an account. Where a provider confirms ends slowly, the
next ones wait, and those in other regions do not."""
TRIED_MAX = 2
"""How many machines are taken back for one lease, so that one that nothing can serve does not end everybody's."""
TOLD_MAX = 4
"""How many notices are given for one lease, so that one whose need comes and goes does not alarm others all day."""
LET_GO_MAX = 3
"""How many leases of one customer may be released in 24 hours while a machine is taken back for them. A lease that
waits costs nothing, so a customer could have others interrupted again and again."""
ORDERS_MAX = 3
"""How many machines are ordered in place of one that was taken back, when a provider refuses."""
COOL_DOWN = timedelta(hours=1)
"""How long a lease that was interrupted runs at least, once it has a machine again."""
HISTORY = timedelta(days=7)
"""How long an earlier interruption counts."""
INTERRUPTED_PER_DAY_MAX = 3
"""How often a lease is interrupted in 24 hours at the most."""
EARLIER_COUNTS = timedelta(hours=1)
"""What each earlier interruption of the lease adds to its time."""
OTHERS_COUNT = timedelta(minutes=15)
"""What each earlier interruption of another lease of the customer adds to it."""
CONSIDERED_NAMED_MAX = 20
"""So many leases are named in the evidence of a decision."""


class PreemptionState(StrEnum):
    NOTIFIED = "notified"
    """The customer of the interruptible lease was told."""
    INTERRUPTED = "interrupted"
    """The lease has its machine no longer, which is overwritten and ended."""
    ORDERED = "ordered"
    """A machine is made ready in its place."""
    SERVED = "served"
    """The lease in need got a machine."""
    WITHDRAWN = "withdrawn"
    """It was not needed any more, and nobody was interrupted."""
    IN_VAIN = "in_vain"
    """A lease was interrupted, and the lease in need got no machine so."""


OPEN = frozenset({PreemptionState.NOTIFIED, PreemptionState.INTERRUPTED, PreemptionState.ORDERED})
INTERRUPTS = frozenset(PreemptionState) - {PreemptionState.NOTIFIED, PreemptionState.WITHDRAWN}
"""States in which a lease was interrupted."""
TAKES_CAPACITY = frozenset({PreemptionState.INTERRUPTED, PreemptionState.ORDERED})
"""States in which the capacity of the machine that was taken back belongs to the lease in need."""


class PreemptionDecision(StrEnum):
    """What was decided about a lease in need, or about a preemption for it."""

    WOULD_NOTIFY = "would_notify"
    """As NOTIFIED, in a dry run: nothing was done."""
    HELD_BACK = "held_back"
    """Nothing is taken back for it now."""
    NOTIFIED = "notified"
    INTERRUPTED = "interrupted"
    ORDERED = "ordered"
    SERVED = "served"
    WITHDRAWN = "withdrawn"
    IN_VAIN = "in_vain"


class KeptCode(StrEnum):
    """Why an interruptible lease keeps its machine."""

    PRIORITY = "priority"
    """The lease in need has no higher priority."""
    DOES_NOT_FIT = "does_not_fit"
    """A machine in place of its own could not serve the lease in need."""
    YIELDS_ALREADY = "yields_already"
    """It yields its machine to another lease."""
    COOLS_DOWN = "cools_down"
    """It was interrupted, and has its machine for less than COOL_DOWN."""
    INTERRUPTED_OFTEN = "interrupted_often"
    """It was interrupted INTERRUPTED_PER_DAY_MAX times in 24 hours."""
    NOT_LISTED = "not_listed"
    """Its provider does not list its machine as running, so that ending it may free nothing."""
    NOT_ARMED = "not_armed"
    """Nothing is ended at its account by itself."""
    PLACE_FULL = "place_full"
    """OPEN_PER_PLACE_MAX preemptions are under way in the region of its machine."""


@dataclass(frozen=True, slots=True)
class Need:
    """A lease that waits, with what it was promised."""

    lease: Lease
    terms: Terms
    waiting_since: datetime
    waiting_why: str
    tried: int
    """How many machines were taken back for it before."""
    told: int
    """How many notices were given for it before, withdrawn ones included."""
    let_go: int
    """How many leases its customer released within 24 hours while a machine was taken back for them."""

    @property
    def deadline(self) -> datetime | None:
        """By when it is to have a machine; None when no time is promised."""
        since, seconds = self.lease.created_at, self.terms.ready_seconds
        if self.lease.replaced_since is not None:
            since, seconds = self.lease.replaced_since, self.terms.replacement_seconds
        return None if seconds is None else since + timedelta(seconds=seconds)

    @property
    def begins_at(self) -> datetime | None:
        """When a machine is taken back for it: as late as its promise allows, because stock may return by itself."""
        if self.deadline is None:
            return None
        return max(self.waiting_since + PATIENCE, min(self.deadline, self.lease.gives_up_at) - TAKES)


def held_back(need: Need, now: datetime, *, started: int) -> str | None:
    """Why nothing is taken back for a lease now; None when something may be.

    `started` notices were given within STARTED_WITHIN.
    """
    begins_at = need.begins_at
    if begins_at is None:
        return f"{need.terms.tier} promises no time by which it has a machine"
    if now + NOTICE >= need.lease.gives_up_at:
        return "it gives up before a machine could be taken back for it"
    if (exhausted := _exhausted(need)) is not None:
        return exhausted
    if now < begins_at:
        return f"stock may return by itself until {begins_at:%Y-%m-%d %H:%M:%S} UTC"
    if started >= STARTED_MAX:
        seconds = int(STARTED_WITHIN.total_seconds())
        return f"{started} notices were given within {seconds} s; {STARTED_MAX} is the limit"
    return None


def _exhausted(need: Need) -> str | None:
    """Why no further machine is taken back for a lease, by what was done for it and its customer before."""
    if need.tried >= TRIED_MAX:
        return f"{need.tried} machines were taken back for it; {TRIED_MAX} is the limit"
    if need.told >= TOLD_MAX:
        return f"{need.told} notices were given for it; {TOLD_MAX} is the limit"
    if need.let_go >= LET_GO_MAX:
        return (
            f"its customer released {need.let_go} leases in 24 hours while a machine was taken back for them;"
            f" {LET_GO_MAX} is the limit"
        )
    return None


@dataclass(frozen=True, slots=True)
class Interruptible:
    """An interruptible lease with a machine of the shape that is needed."""

    lease_id: LeaseId
    organization_id: OrganizationId
    claim_id: ClaimId
    machine_id: MachineId
    account: str
    region: str
    offer_key: str
    gpu_count: int
    priority: int
    """What its customer said."""
    running_since: datetime
    """Since when it has its machine."""
    interruptions: int
    """Of the lease, within HISTORY."""
    interruptions_today: int
    """Of the lease, within 24 hours."""
    others_interrupted: int
    """Interruptions of other leases of the customer, within HISTORY."""
    yields_already: bool
    listed: bool
    """Whether its provider lists its machine as running."""
    armed: bool
    """Whether its account is armed."""
    under_way: int
    """Preemptions that are under way in the region of its machine."""

    @property
    def rank(self) -> int:
        """Its priority among interruptible leases. A high number protects none: it is the customer's own word."""
        return min(self.priority, PRIORITY_DEFAULT)

    def harm(self, at: datetime) -> int:
        """What an interruption at `at` costs its customer, in GPU-seconds."""
        ran = max(timedelta(), at - self.running_since)
        earlier = self.interruptions * EARLIER_COUNTS + self.others_interrupted * OTHERS_COUNT
        # A machine without GPUs counts as one.
        return max(1, self.gpu_count) * int((ran + earlier).total_seconds())


@dataclass(frozen=True, slots=True)
class Considered:
    """An interruptible lease that was looked at, with what spoke for it."""

    lease_id: LeaseId
    rank: int
    harm: int
    """In GPU-seconds."""
    kept: KeptCode | None
    """Why it keeps its machine; None when it could yield it."""
    why: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which lease yields its machine, and what was looked at, the first to yield first."""

    chosen: Interruptible | None
    considered: tuple[Considered, ...]
    """CONSIDERED_NAMED_MAX at most."""
    more: int
    """How many more were looked at."""


def choose(
    need: Need, running: Iterable[Interruptible], *, unfit: Mapping[MachineId, str], now: datetime
) -> Choice:
    """The lease with the lowest harm of those that can yield their machine.

    `unfit` maps machines to the reason why one in their place could not serve the lease in need.
    """
    at = now + NOTICE
    considered: list[tuple[Interruptible, Considered]] = []
    for lease in sorted(running, key=lambda each: _order(each, at)):
        code, why = _kept(need, lease, unfit, now) or (None, None)
        considered.append((lease, Considered(lease.lease_id, lease.rank, lease.harm(at), code, why)))
    chosen = next((lease for lease, each in considered if each.kept is None), None)
    # Those that could yield are named before those that could not.
    named = sorted((each for _, each in considered), key=lambda each: each.kept is not None)
    return Choice(chosen, tuple(named[:CONSIDERED_NAMED_MAX]), max(0, len(named) - CONSIDERED_NAMED_MAX))


def _order(lease: Interruptible, at: datetime) -> tuple[int, int, float, LeaseId]:
    return (lease.rank, lease.harm(at), -lease.running_since.timestamp(), lease.lease_id)


def _kept(
    need: Need, lease: Interruptible, unfit: Mapping[MachineId, str], now: datetime
) -> tuple[KeptCode, str] | None:
    if lease.rank >= need.terms.priority:
        why = f"Its priority is {lease.rank}; that of the lease in need is {need.terms.priority}."
        return KeptCode.PRIORITY, why
    if lease.yields_already:
        return KeptCode.YIELDS_ALREADY, "It yields its machine to another lease."
    if lease.machine_id in unfit:
        return KeptCode.DOES_NOT_FIT, unfit[lease.machine_id]
    return _kept_by_its_place(lease) or _kept_by_its_past(lease, now)


def _kept_by_its_place(lease: Interruptible) -> tuple[KeptCode, str] | None:
    if not lease.armed:
        return KeptCode.NOT_ARMED, f"The account {lease.account} is not armed."
    if not lease.listed:
        return KeptCode.NOT_LISTED, "Its provider does not list its machine as running."
    if lease.under_way >= OPEN_PER_PLACE_MAX:
        why = (
            f"{lease.under_way} preemptions are under way at {lease.account} in {lease.region};"
            f" {OPEN_PER_PLACE_MAX} is the limit."
        )
        return KeptCode.PLACE_FULL, why
    return None


def _kept_by_its_past(lease: Interruptible, now: datetime) -> tuple[KeptCode, str] | None:
    if lease.interruptions and now - lease.running_since < COOL_DOWN:
        minutes = int(COOL_DOWN.total_seconds() // 60)
        return KeptCode.COOLS_DOWN, f"It was interrupted, and runs again for less than {minutes} minutes."
    if lease.interruptions_today >= INTERRUPTED_PER_DAY_MAX:
        why = f"It was interrupted {lease.interruptions_today} times in 24 hours."
        return KeptCode.INTERRUPTED_OFTEN, why
    return None


@dataclass(frozen=True, slots=True)
class Facts:
    """A preemption that is under way, with what its next step depends on."""

    state: PreemptionState
    interrupt_at: datetime
    interrupted_at: datetime | None
    waits: bool
    """Whether the lease in need still waits for a machine."""
    got_machine: bool
    """Whether it had one since the notice, or one starts for it, whichever that is."""
    has_machine: bool
    """Whether the interruptible lease still has the machine that it is to yield."""
    listed: bool
    """Whether its provider lists that machine as running, so that ending it frees a place there."""
    armed: bool
    """Whether operators let preemptions happen."""
    refused: str | None
    """Why nothing could be ordered in place of the machine now; None when it could."""
    gone: bool
    """Whether the provider has confirmed the end of the machine that was taken back."""
    order_failed: bool
    """Whether the machine that was ordered in its place is not coming any more."""
    orders: int
    """How many were ordered."""


@dataclass(frozen=True, slots=True)
class Wait:
    why: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """End the claim of the interruptible lease on its machine."""


@dataclass(frozen=True, slots=True)
class OrderInPlace:
    """Order a machine in place of the one that was taken back."""


@dataclass(frozen=True, slots=True)
class Close:
    state: PreemptionState
    why: str


Action = Wait | Interrupt | OrderInPlace | Close


def next_action(facts: Facts, now: datetime) -> Action:
    """What is done next about a preemption."""
    if facts.state is PreemptionState.NOTIFIED:
        return _notified(facts, now)
    if facts.got_machine:
        return Close(PreemptionState.SERVED, "the lease in need got a machine")
    in_vain = _in_vain(facts, now)
    if in_vain is not None:
        return Close(PreemptionState.IN_VAIN, in_vain)
    if facts.state is PreemptionState.ORDERED and not facts.order_failed:
        return Wait("the machine in its place is made ready")
    if not facts.gone:
        return Wait("the provider has not confirmed the end of the machine yet")
    return OrderInPlace() if facts.refused is None else Wait(facts.refused)


def _notified(facts: Facts, now: datetime) -> Action:
    not_needed = _not_needed(facts)
    if not_needed is not None:
        return Close(PreemptionState.WITHDRAWN, not_needed)
    # When its customer let go of the machine, or it failed, the capacity comes free all the same.
    return Wait("its customer was told") if facts.has_machine and now < facts.interrupt_at else Interrupt()


def _not_needed(facts: Facts) -> str | None:
    """Why nobody is interrupted after all; None when somebody is."""
    if facts.got_machine:
        return "the lease in need got a machine in another way"
    if not facts.waits:
        return "the lease in need waits no longer"
    if facts.has_machine and not facts.armed:
        return "an operator switched preemption off"
    if facts.has_machine and not facts.listed:
        return (
            "its provider does not list the machine as running any more, so that ending it may free nothing"
        )
    return facts.refused if facts.has_machine else None


def _in_vain(facts: Facts, now: datetime) -> str | None:
    """Why the lease in need gets no machine from what was taken back; None while it may."""
    if not facts.waits:
        return "the lease in need waits no longer"
    if now - (facts.interrupted_at or facts.interrupt_at) >= LASTS_MAX:
        minutes = int(LASTS_MAX.total_seconds() // 60)
        return f"no machine was ready {minutes} minutes after the interruption"
    if facts.order_failed and facts.orders >= ORDERS_MAX:
        return f"{facts.orders} orders in its place failed"
    return None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a decision was based on, as it is stored. A decision about a lease in need has what is known about that; a
    later step has the facts that it follows from.
    """

    tier: SlaTier | None = None
    priority: int | None = None
    """Of the tier."""
    deadline: datetime | None = None
    waiting_since: datetime | None = None
    waiting_why: str | None = None
    tried: int | None = None
    considered: tuple[Considered, ...] = ()
    more: int = 0
    facts: Facts | None = None


def evidence(need: Need, choice: Choice | None) -> Evidence:
    """What a decision about a lease in need was based on."""
    return Evidence(
        tier=need.terms.tier,
        priority=need.terms.priority,
        deadline=need.deadline,
        waiting_since=need.waiting_since,
        waiting_why=need.waiting_why,
        tried=need.tried,
        considered=() if choice is None else choice.considered,
        more=0 if choice is None else choice.more,
    )
