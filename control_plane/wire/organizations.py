"""Organizations."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.api_keys import ApiKeyView
from control_plane.wire.common import (
    Money,
    Name,
    NextCursor,
    Request,
    Sentence,
    Timestamp,
    View,
)
from control_plane.wire.vocabulary import (
    ActorKindWord,
    OrganizationEventWord,
    OrganizationIdText,
    OrganizationStateWord,
)


class OrganizationView(View):
    """An organization with its money and its quota."""

    id: OrganizationIdText
    """The id of the organization."""
    name: str
    """Its name."""
    state: OrganizationStateWord
    """Where it is in its life."""
    platform: bool
    """Whether it is the organization of those who run the installation."""
    gpu_quota: int | None
    """How many GPUs it may hold at once, by its ceiling; null when the ceiling does not limit it."""
    gpus_held: int
    """How many GPUs its leases hold now."""
    balance: Money
    """What was paid in, less the charges posted."""
    held: Money
    """Set aside for running leases."""
    available: Money
    """The balance less the holds. It has to cover the first hour of a new lease."""
    created_at: Timestamp
    """When it was created."""
    erased_at: Timestamp | None
    """When its personal data was erased, after its deletion; null before."""


class OrganizationPage(View):
    """A page of organizations."""

    items: tuple[OrganizationView, ...]
    """The organizations, oldest first."""
    next_cursor: NextCursor | None


class OrganizationRequest(Request):
    """An organization to be created, with its first API key."""

    name: Name
    """Its name."""
    gpu_quota: Annotated[int, Meta(ge=0, le=1_000_000)] = 64
    """How many GPUs it may hold at once: the first limit of its ceiling, which an operator can change."""
    key_name: Name = "first key"
    """The name of its first API key."""


class CreatedOrganization(View):
    """A new organization with its first API key."""

    organization: OrganizationView
    """The organization."""
    key: ApiKeyView
    """Its first API key."""
    secret: str | None
    """The secret of the first API key. It is in this answer only; a replay of the request answers null."""


class ReasonRequest(Request):
    """A decision on an organization."""

    reason: Sentence
    """Why, for its record."""


class SuspensionRequest(ReasonRequest, kw_only=True):
    """A suspension."""

    end_leases: bool = False
    """Whether its leases end now. Otherwise they run on what is held for them."""


class EndedView(View):
    """What a change of an organization's state ended."""

    waiting_leases: int
    """Leases that waited for a machine."""
    starting_leases: int
    """Leases whose machine was being set up."""
    ready_leases: int
    """Leases that ran."""
    ending_leases: int
    """Leases that were ending before; their machines may still live."""
    api_keys: int
    """API keys that were valid until then."""
    holds: Money
    """What is no longer held for the leases that it ended."""


class OrganizationEventView(View):
    """A change of an organization's state."""

    number: int
    """Identifies the change. Numbers grow, with gaps."""
    at: Timestamp
    """When it happened."""
    event: OrganizationEventWord
    """What happened."""
    state_before: OrganizationStateWord
    """The state before."""
    state_after: OrganizationStateWord
    """The state after."""
    reason: str
    """Why."""
    actor_kind: ActorKindWord
    """Who did it."""
    actor: str
    """The id of the user or the service account, or the name of the loop."""
    request_id: str | None
    """The request that did it; null for loops."""
    ended: EndedView
    """What it ended."""
    held: Money
    """What was still held after it: use that was not posted yet."""
    balance: Money
    """The balance after it."""


class OrganizationChange(View):
    """An organization after a change, and the record of the change."""

    organization: OrganizationView
    """The organization now."""
    event: OrganizationEventView
    """The change."""


class OrganizationEventPage(View):
    """A page of an organization's record."""

    items: tuple[OrganizationEventView, ...]
    """The changes, oldest first."""
    next_cursor: NextCursor | None
