"""Whose doing it is that a machine does not run, by its provider's word, and what follows for its customer.

A customer with root shuts a machine down from inside with one command, and providers show that in different words.
Some have one word for it, and another one for their own failures; some have one word for both; and some say that they
stopped a machine themselves (docs/providers.md lists what each shows). So a provider's word has one of three meanings:

    word                      whose doing   bill              counts for promises   if it lasts, and nobody starts it
    stopped                   CUSTOMER      price stopped     no                    off, or ended (NOT_RUNNING)
    off_or_failed             UNCLEAR       nothing           no                    ended (NOT_RUNNING)
    failed, ending,           PROVIDER      nothing           yes                   ended
    stopped_by_provider                                                             (PROVIDER_REPORTED_FAILURE), or off

A failure of a provider's is never billed, so what is unclear is not. Nobody earns by shutting a machine down, so what
is unclear breaks no promise by itself: an operator gives a credit where the provider admits a failure (docs/sla.md).

What a machine says about its own end, in a last report or in the journal of its boots, decides nothing. Its customer
has root and can keep it from saying anything, and its owner can have it say anything (law 11). That it works although
lists show it as down is something that we see ourselves: then it is billed (`SEEN_LASTS`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from control_plane.domain.failure import FailReason
from control_plane.domain.listed_state import ListedState


class Cause(StrEnum):
    """Whose doing it is that a machine does not run."""

    CUSTOMER = "customer"
    """Nobody but its customer says or does anything that would explain it."""
    UNCLEAR = "unclear"
    PROVIDER = "provider"
    """Its provider says so."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """What follows for the customer of a machine that does not run."""

    billed: bool
    """Whether the time is charged, at the price while stopped."""
    counts: bool
    """Whether it counts as time in which what was promised was missing."""
    fail_reason: FailReason
    """Why the machine is given up when it stays so."""


CAUSES: Mapping[ListedState, Cause] = {
    ListedState.STOPPED: Cause.CUSTOMER,
    ListedState.OFF_OR_FAILED: Cause.UNCLEAR,
    ListedState.STOPPED_BY_PROVIDER: Cause.PROVIDER,
    ListedState.FAILED: Cause.PROVIDER,
    ListedState.ENDING: Cause.PROVIDER,
}
"""The states in which a machine does not run, though nobody asked for that, with whose doing that is."""
CONSEQUENCES: Mapping[Cause, Consequence] = {
    Cause.CUSTOMER: Consequence(billed=True, counts=False, fail_reason=FailReason.NOT_RUNNING),
    Cause.UNCLEAR: Consequence(billed=False, counts=False, fail_reason=FailReason.NOT_RUNNING),
    Cause.PROVIDER: Consequence(billed=False, counts=True, fail_reason=FailReason.PROVIDER_REPORTED_FAILURE),
}
_MILDEST_FIRST = (Cause.CUSTOMER, Cause.UNCLEAR, Cause.PROVIDER)
OFF = frozenset({ListedState.STOPPED, ListedState.STOPPED_BY_PROVIDER})
"""States of a machine that can be started, where its provider can start machines."""
SEEN_LASTS = timedelta(minutes=10)
"""How far two looks at a machine may lie apart that both show it working, so that it worked in between."""


def explains_more(cause: Cause, before: Cause | None) -> bool:
    """Whether a list says more about a downtime than lists did before. What its provider admitted once, stays so."""
    return before is None or _MILDEST_FIRST.index(cause) > _MILDEST_FIRST.index(before)
