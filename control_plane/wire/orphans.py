"""Orphans: machines at a provider that no open record claims."""

from typing import Annotated, Literal

from msgspec import Meta

from control_plane.wire.codes import HeldCodeWord, OriginWord, OrphanChoiceWord
from control_plane.wire.common import (
    AccountText,
    Money,
    NextCursor,
    ProviderRefText,
    Request,
    Sentence,
    Timestamp,
    View,
)

ORPHANS_PER_REQUEST_MAX = 1_000
OrphanChoice = Literal["end", "leave", "adopt", "revoke"]


class OrphanDecisionRequest(Request):
    """What an operator decides about orphans."""

    account: AccountText
    """The provider account that lists them."""
    provider_refs: Annotated[
        tuple[ProviderRefText, ...], Meta(min_length=1, max_length=ORPHANS_PER_REQUEST_MAX)
    ]
    """The provider's ids of the orphans. All of them are listed, or nothing is decided."""
    choice: OrphanChoice
    """What is decided: to terminate them whatever holds them back, to leave them alone, that their records adopt them,
    or that the last decision no longer counts."""
    why: Sentence
    """Why. Auditors read it."""


class OrphanDecisionView(View):
    """An operator's decision on an orphan."""

    account: str
    """The provider account that lists it."""
    provider_ref: str
    """The provider's id of the machine."""
    launch_key: str
    """Our id of the order that it was made for."""
    choice: OrphanChoiceWord
    """What was decided."""
    why: str
    """Why it was decided."""
    actor: str
    """The user or the service account that decided."""
    at: Timestamp
    """When it was decided."""


class OrphanDecisionList(View):
    """The decisions on orphans."""

    items: tuple[OrphanDecisionView, ...]
    """One decision per orphan."""


class OrphanView(View):
    """A machine under one of our launch keys that no open record claims."""

    account: str
    """The provider account that lists it."""
    provider_ref: str
    """The provider's id of the machine."""
    launch_key: str
    """Our id of the order that it was made for."""
    native_status: str
    """The status in the provider's own words."""
    first_seen_at: Timestamp
    """When a list first showed it."""
    last_seen_at: Timestamp
    """When a list last showed it."""
    lists_seen: int
    """How many of the provider's lists have shown it."""
    terminate_asked_at: Timestamp | None
    """When its termination was last requested; null before that."""
    note: str | None
    """The result of the last try to terminate it."""
    gone_at: Timestamp | None
    """When a list no longer showed it; null while it is listed."""
    origin: OriginWord = "unrecorded"
    """How it became an orphan, as far as our records tell."""
    origin_why: str = ""
    """The same as a sentence."""
    cost_per_hour: Money | None = None
    """What the provider charges for it; null where no record tells the price."""
    cost: Money | None = None
    """What it has cost since a list first showed it; null where no record tells the price."""
    held_code: HeldCodeWord | None = None
    """Why it is held back; null when it is not."""
    held_why: str | None = None
    """The same as a sentence."""
    not_adopted_why: str | None = None
    """Why the record of its launch key cannot adopt it; null when it can."""
    decision: OrphanDecisionView | None = None
    """An operator's last decision; null when there is none, or it was revoked."""


class OrphanList(View):
    """The orphans of all provider accounts."""

    items: tuple[OrphanView, ...]
    """The orphans."""
    next_cursor: NextCursor | None = None
