"""Provider accounts, and permits to terminate machines there."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.codes import BlockScopeWord, FailReasonWord
from control_plane.wire.common import AccountText, NextCursor, Request, Sentence, Timestamp, View
from control_plane.wire.vocabulary import one_of

CredentialsFromWord = Annotated[
    str,
    one_of(
        "CredentialsFrom",
        "Where an account's credentials come from.",
        environment="The environment of the reconciler.",
        operator="An operator stored them, sealed.",
    ),
]


class MissingMachinesRequest(Request):
    """What an operator saw of a frozen account whose list misses machines."""

    frozen_since: Timestamp
    """Since when it is frozen."""
    machines: Annotated[int, Meta(ge=1, le=1_000_000, examples=[12])]
    """How many machines its list misses. The permit covers no list that misses more."""


class MissingMachinesView(View):
    """The freeze that a permit is for."""

    frozen_since: Timestamp
    """Since when the account is frozen."""
    machines: int
    """How many machines the list may miss."""


class TerminationPermitRequest(Request):
    """A permit to terminate machines of one account."""

    account: AccountText
    """The provider account."""
    why: Sentence
    """Why it is given. Auditors read it."""
    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60
    """For how many minutes it is in force."""
    missing: MissingMachinesRequest | None = None
    """For machines that the account's lists miss; without it, for machines that fail their GPU proof."""


class TerminationPermitView(View):
    """Machines of the account that fail their GPU proof, or that its lists miss, may be terminated, however many."""

    account: str
    """The provider account."""
    why: str
    """Why it was given."""
    actor: str
    """The user or the service account that gave it."""
    at: Timestamp
    """When it was given."""
    until: Timestamp
    """When it ends."""
    missing: MissingMachinesView | None = None
    """The freeze that it is for; null when it is for machines that fail their GPU proof."""


class OfferBlockView(View):
    """What is not ordered for a while, because the provider refused an order."""

    scope: BlockScopeWord
    """How much the refusal covers."""
    subject: str
    """What it covers, in words."""
    reason: FailReasonWord
    """Why the order was refused."""
    machine_id: str
    """The machine that was ordered."""
    since: Timestamp
    """When the order was refused."""
    until: Timestamp
    """When it ends."""


class RateLimitView(View):
    """A rate limit of a provider, and how we keep it over all processes."""

    bucket: str
    """Its name."""
    calls: int
    """As many calls the provider publishes to take,"""
    seconds: float
    """in so many seconds."""
    burst: int | None
    """The size of the provider's token bucket; null for a window or a minimum interval."""
    share_percent: int
    """How much of it we use at most now: less than 100 after the provider throttled us or told a lower limit."""
    turns_last_minute: int
    """How many calls were made or reserved in the last whole minute."""
    next_turn_at: Timestamp
    """When the next call is due, if none is saved up: later than now while calls wait."""


class AccountView(View):
    """A provider account of ours, and how its last lists were."""

    name: str
    """The account, such as `lambda_cloud/research`."""
    provider: str
    """Whose account it is."""
    listing_asked_at: Timestamp | None
    """When its last complete list was requested; null before the first."""
    listing_size: int
    """How many live machines of ours the last complete list had."""
    frozen_since: Timestamp | None
    """Since when no machine is bought or terminated there, because a list looked wrong; null when it is not so."""
    frozen_why: str | None
    """Why it is frozen; null when it is not."""
    failing_since: Timestamp | None
    """Since when its machines or its offers cannot be listed or stored; null when both can."""
    failing_why: str | None
    """What fails; null when nothing does."""
    termination_permit: TerminationPermitView | None
    """The permit in force for machines that fail their GPU proof; null when there is none."""
    frozen_missing: int = 0
    """While it is frozen: how many machines its list misses, with those that vanished in the last hour."""
    frozen_needs_permit: bool = False
    """Whether only a permit makes us believe that these machines are gone; otherwise 15 minutes of such lists do."""
    missing_permit: TerminationPermitView | None = None
    """The permit in force for machines that its lists miss; null when there is none."""
    drained_since: Timestamp | None = None
    """Since when nothing is ordered there, because an operator drained it; null while it is used."""
    drained_why: str | None = None
    """Why it is drained; null when it is not."""
    armed_since: Timestamp | None = None
    """Since when orphans there are terminated; null while they are only reported, because it is not armed."""
    disarmed_why: str | None = None
    """Why it was disarmed, when no operator asked for it; null otherwise."""
    credentials_from: CredentialsFromWord = "environment"
    """Where its credentials come from."""
    credentials_since: Timestamp | None = None
    """Since when its stored credentials are in force; null for an account of the environment."""
    blocks: tuple[OfferBlockView, ...] = ()
    """What is not ordered there for a while because orders were refused, the longest first."""
    limits: tuple[RateLimitView, ...] = ()
    """Its provider's rate limits, once calls were made. One that counts by source address is at the first account."""
    offers_left_out: tuple[str, ...] = ()
    """What its last listing had that cannot be sold, such as GPUs with unknown names, each with the reason."""


class AccountList(View):
    """All provider accounts."""

    items: tuple[AccountView, ...]
    """The accounts, in order of name."""
    next_cursor: NextCursor | None = None
