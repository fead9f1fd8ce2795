"""Why leases end, and those that operators end."""

from typing import Annotated

from control_plane.wire.common import Request, Sentence, Timestamp, View
from control_plane.wire.vocabulary import LeaseIdText, LeaseStateWord, OrganizationIdText, one_of

EndReasonWord = Annotated[
    str,
    one_of(
        "EndReason",
        "Why a lease ends.",
        released="Its customer released it.",
        auto_released="A limit of its `auto_release` was reached.",
        no_capacity="No provider had stock before it gave up.",
        unfunded="The balance did not cover the next period.",
        machine_lost="The provider no longer has its machine, or it was a node whose machine was taken away.",
        evicted="The provider took its machine back, which was spot capacity.",
        preempted="We took its machine back for a lease whose readiness is promised: it was interruptible.",
        proof_failed="The GPUs of its machine failed their proof twice in a row.",
        organization_suspended="Its organization was suspended for a reason that ends its leases.",
        organization_closed="Its organization was closed.",
        envelope_exceeded="It was outside of an envelope for longer than the grace after its warning.",
        ended_by_operator="An operator ended it; `end_why` has the reason.",
    ),
]


class LeaseEndRequest(Request):
    """A decision to end a lease."""

    reason: Sentence
    """Why. Its customer reads it with the lease."""


class LeaseEndView(View):
    """A lease that ends."""

    id: LeaseIdText
    """The lease."""
    name: str
    """Its name."""
    organization_id: OrganizationIdText
    """Whose lease it is."""
    state: LeaseStateWord
    """`ending` until its provider shows the end of its last machine, then `ended`."""
    end_reason: EndReasonWord | None
    """Why it ends, as a word: `ended_by_operator`, unless it was ending already."""
    end_why: str | None
    """Why it ends, as its customer reads it."""
    billed_until: Timestamp | None
    """When its bill stopped; null when it was never ready."""
    ended_at: Timestamp | None
    """When its last machine was gone; null before that."""
