"""Promises of leases: how they stand, which were broken, what was given back, and the report of a month."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Money, NextCursor, Request, Sentence, Timestamp, View
from control_plane.wire.sla_terms import SlaTierWord
from control_plane.wire.vocabulary import LeaseIdText, OrganizationIdText, one_of

SlaBreachIdText = Annotated[
    str,
    Meta(description="The id of a broken promise.", examples=["br_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"]),
]
PromiseWord = Annotated[
    str,
    one_of(
        "SlaPromise",
        "What is promised.",
        availability="The share of a calendar month (UTC) in which the lease is available.",
        replacement="A machine that fails is back, or replaced, within a time.",
        ready="The lease is ready within a time after it was created.",
        notice="Maintenance is announced a time before.",
    ),
]
StandingWord = Annotated[
    str,
    one_of(
        "SlaStanding",
        "How a promise stands.",
        not_promised="It is not made.",
        kept="It was kept so far.",
        at_risk="The availability of this month is below the promised one so far; it is judged when the month, or the"
        " lease, is over.",
        broken="It was broken.",
    ),
]
CauseWord = Annotated[
    str,
    one_of(
        "SlaCause",
        "Why a lease was not available.",
        failed="Its machine failed or was being replaced. Nothing was billed.",
        broken="A part of what was sold did not work.",
        maintenance="We worked on its machine without the promised notice.",
    ),
]

FactSourceWord = Annotated[
    str,
    one_of(
        "SlaFactSource",
        "Where a fact is from.",
        journal="Our journal.",
        bill="Seconds that were not billed.",
        provider="The lists of the machine's provider.",
        machine="What we read on the machine ourselves.",
        proof="A GPU proof.",
        operator="An operator of ours.",
        customer="The customer of the lease.",
    ),
]


class SlaPromiseView(View):
    """A promise of a lease, and how it stands."""

    promise: PromiseWord
    """What is promised."""
    standing: StandingWord
    """How it stands now."""
    promised: str
    """What exactly, in words with units."""
    so_far: str
    """What was measured so far, in words with units."""


class SlaDownView(View):
    """Time in which the lease was not available."""

    since: Timestamp
    """Its first second."""
    until: Timestamp
    """The second after it, or now."""
    length_seconds: int
    """How long it is."""
    cause: CauseWord
    """Why."""


class SlaMonthView(View):
    """The availability of a lease in a calendar month (UTC)."""

    month: str
    """Such as `2026-10`."""
    available_percent: str
    """In percent of the promised time, rounded down: `99.73`."""
    promised_seconds: int
    """In which it was to be available: while it was ready, without the time in which you had it stopped."""
    down_seconds: int
    """In which it was not."""
    down: tuple[SlaDownView, ...]
    """When, by cause. Causes may overlap."""
    charged: Money
    """What the lease was charged for the month: what credits are shares of."""
    settled: bool
    """Whether only late evidence can change these figures."""


class SlaFactView(View):
    """A fact by which a broken promise was found."""

    at: Timestamp
    """When it happened, or began."""
    until: Timestamp | None
    """When it ended; null for what happened at a moment, or had not ended when the promise was judged."""
    what: str
    """What, as a sentence with units."""
    source: FactSourceWord
    """Where it is from."""


class SlaBreachView(View):
    """A promise that was broken in a month."""

    id: SlaBreachIdText
    """The id of the breach: the entry of the balance names it."""
    organization_id: OrganizationIdText
    """Whose lease it is."""
    lease_id: LeaseIdText
    """The lease."""
    promise: PromiseWord
    """Which promise."""
    month: str
    """The calendar month (UTC), such as `2026-10`."""
    sla: SlaTierWord
    """The tier of the lease."""
    sla_version: int
    """The version of its terms."""
    since: Timestamp
    """When it began to be broken."""
    found_at: Timestamp
    """When that was found."""
    why: str
    """The evidence in figures, as a sentence."""
    evidence: tuple[SlaFactView, ...]
    """The facts that it follows from, the oldest first; of each kind, up to 100."""
    charged: Money | None
    """What the lease was charged for the month; null until the month, or the lease, is over."""
    credit: Money | None
    """What is given back; null until the month, or the lease, is over."""
    credited: Money
    """What of it the balance has."""
    credited_at: Timestamp | None
    """When the balance got the latest part of it; null before that."""
    waiting: Money
    """What of it waits until our finance has decided, because nothing but what we read on the machine shows it."""
    waiting_since: Timestamp | None
    """Since when; null when nothing waits."""
    refused_at: Timestamp | None
    """When the part that waited was refused; null when it was not."""
    refused_why: str | None
    """Why."""


class LeaseSlaView(View):
    """What is promised with a lease, how it stands now, and what was given back."""

    lease_id: LeaseIdText
    """The lease."""
    sla: SlaTierWord
    """Its tier."""
    sla_version: int | None
    """The version of its terms; null when nothing is promised."""
    at: Timestamp
    """The time for which everything is shown."""
    promises: tuple[SlaPromiseView, ...]
    """Every promise; empty when nothing is promised."""
    months: tuple[SlaMonthView, ...]
    """Each month of its life, the oldest first."""
    breaches: tuple[SlaBreachView, ...]
    """Every breach, the oldest first."""
    credited: Money
    """The sum of what the balance got."""
    counts: tuple[str, ...]
    """What counts as lack of availability."""
    does_not_count: tuple[str, ...]
    """What does not."""


class SlaTierTotalView(View):
    """What a month came to for the leases of a tier, as of their last judgement, which for a lease that lives is ten
    minutes old at most.
    """

    sla: SlaTierWord
    """The tier."""
    leases: int
    """How many leases had promises in the month."""
    kept: int
    """How many of their promises were kept, so far."""
    breaches: int
    """How many were broken. One that was kept by late evidence counts as both."""
    breached_leases: int
    """Of how many leases."""
    available_percent: str | None
    """The availability of all these leases together, each weighted by its promised time, in percent rounded down:
    `99.97`. Null while no time was promised."""
    promised_seconds: int
    """In which they were to be available, all together."""
    down_seconds: int
    """In which they were not."""
    credit: Money
    """What is given back for breaches, as far as it is known."""
    credited: Money
    """What of it balances have."""


class SlaReportView(View):
    """What a calendar month (UTC) came to: promises kept and broken, and what was given back."""

    month: str
    """Such as `2026-10`."""
    tiers: tuple[SlaTierTotalView, ...]
    """The sums of each tier of which a lease had promises."""
    items: tuple[SlaBreachView, ...]
    """The breaches, in the order in which they were found."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get more breaches; null on the last page."""


class SlaCreditList(View):
    """Broken promises of which a part of the credit waits for a decision."""

    items: tuple[SlaBreachView, ...]
    """In the order in which they were found."""
    next_cursor: NextCursor | None
    """Pass it as `?cursor=` to get more; null on the last page."""


class SlaDecisionRequest(Request):
    """A decision on the part of a credit that waits."""

    reason: Sentence
    """What was looked at. The customer reads it when the credit is refused, and on the balance when it is approved."""


class SlaApprovalRequest(Request):
    """Credits that wait because they are many are to be posted."""

    reason: Sentence
    """What was looked at, such as the number of a ticket. It is stored with who sent it."""


class SlaApprovalView(View):
    """The approval of the credits that waited."""

    approved_at: Timestamp
    """When."""
    approved_by: str
    """The id of the subject."""
    reason: str
    """What was looked at."""
    waiting: int
    """How many credits waited; they are posted within seconds."""
