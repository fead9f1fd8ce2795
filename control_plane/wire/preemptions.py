"""Preemptions: interruptible leases that yield their machine to a lease whose readiness is promised, for operators."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import NextCursor, Request, Sentence, Timestamp, View
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import LeaseIdText, MachineIdText, PreemptionIdText, one_of

PreemptionStateWord = Annotated[
    str,
    one_of(
        "PreemptionState",
        "How far a preemption is.",
        notified="The customer of the interruptible lease was told.",
        interrupted="The lease has its machine no longer, which is overwritten and ended.",
        ordered="A machine is made ready in its place.",
        served="The lease in need got a machine.",
        withdrawn="It was not needed any more, and nobody was interrupted.",
        in_vain="A lease was interrupted, and the lease in need got no machine so.",
    ),
]
PreemptionDecisionWord = Annotated[
    str,
    one_of(
        "PreemptionDecision",
        "What was decided about a lease in need, or about a preemption for it.",
        would_notify="In a dry run: a lease would have been told that it yields its machine.",
        held_back="Nothing is taken back for it now.",
        notified="A lease was told that it yields its machine.",
        interrupted="The machine was taken back.",
        ordered="A machine was ordered in its place.",
        served="The lease in need got a machine.",
        withdrawn="It was not needed any more.",
        in_vain="The lease in need got no machine from what was taken back.",
    ),
]
KeptWord = Annotated[
    str,
    one_of(
        "PreemptionKept",
        "Why an interruptible lease keeps its machine.",
        priority="The lease in need has no higher priority.",
        does_not_fit="A machine in place of its own could not serve the lease in need.",
        yields_already="It yields its machine to another lease.",
        cools_down="It was interrupted, and has its machine again for less than an hour.",
        interrupted_often="It was interrupted three times in 24 hours.",
        not_listed="Its provider does not list its machine as running.",
        not_armed="Nothing is ended at its account by itself.",
        place_full="Five preemptions are under way in the region of its machine, which is the limit.",
    ),
]


class PreemptionView(View):
    """An interruptible lease that yields its machine, or did."""

    id: PreemptionIdText
    """Its id."""
    lease_id: LeaseIdText
    """The interruptible lease."""
    machine_id: MachineIdText
    """The machine that it yields."""
    for_lease_id: LeaseIdText
    """The lease in need."""
    state: PreemptionStateWord
    """How far it is."""
    why: str
    """Why, as a sentence."""
    harm_gpu_seconds: int
    """What the interruption costs the customer, by the formula of docs/preemption.md, in GPU-seconds."""
    notified_at: Timestamp
    """When the customer was told."""
    interrupt_at: Timestamp
    """When the machine is taken back, as the customer was told."""
    interrupted_at: Timestamp | None
    """When it was; null before that, and when its customer let go of it first."""
    ordered_machine_id: MachineIdText | None
    """The machine that was ordered last in its place; null before the first."""
    orders: int
    """How many machines were ordered in its place."""
    closed_at: Timestamp | None
    """When it was over; null while it is under way."""


class PreemptionPage(View):
    """Preemptions, the latest first."""

    items: tuple[PreemptionView, ...]
    """The page."""
    next_cursor: NextCursor | None
    """Where the next page starts; null on the last one."""


class ConsideredView(View):
    """An interruptible lease that was looked at."""

    lease_id: LeaseIdText
    """The lease."""
    priority: int
    """Its priority among interruptible leases: its own, and at most 50."""
    harm_gpu_seconds: int
    """What its interruption would cost its customer, in GPU-seconds."""
    kept: KeptWord | None
    """Why it keeps its machine; null when it could yield it."""
    why: str | None
    """The same as a sentence."""


class PreemptionDecisionView(View):
    """A decision about a lease in need, with what it was based on."""

    at: Timestamp
    """When it was made."""
    decision: PreemptionDecisionWord
    """What was decided."""
    for_lease_id: LeaseIdText
    """The lease in need."""
    lease_id: LeaseIdText | None
    """The interruptible lease; null when none yields its machine."""
    preemption_id: PreemptionIdText | None
    """The preemption; null before there is one."""
    why: str
    """Why, as a sentence."""
    tier: SlaTierWord | None
    """The tier of the lease in need; null for a later step."""
    deadline: Timestamp | None
    """By when it was promised a machine; null for a later step."""
    waiting_why: str | None
    """Why nothing could serve it; null for a later step."""
    considered: tuple[ConsideredView, ...]
    """The interruptible leases that were looked at, those that could yield a machine first."""


class PreemptionDecisionPage(View):
    """Decisions, the latest first."""

    items: tuple[PreemptionDecisionView, ...]
    """The page."""
    next_cursor: NextCursor | None
    """Where the next page starts; null on the last one."""


class PreemptionSwitchRequest(Request):
    """Whether machines of interruptible leases are taken back."""

    armed: Annotated[bool, Meta(examples=[True])]
    """Whether they are. Otherwise everything is decided and stored, and nothing is done."""
    reason: Sentence
    """Why."""


class PreemptionSwitchView(View):
    """Whether machines of interruptible leases are taken back."""

    armed: bool
    """Whether they are; false also before anybody decided."""
    at: Timestamp | None
    """When that was decided; null before anybody did."""
    switched_by: str | None
    """The user or the service account who decided."""
    reason: str | None
    """Why."""
