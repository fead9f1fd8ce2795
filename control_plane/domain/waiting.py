"""A lease that waits: because no offer can serve it now, or for something of ours that its machine needs.

What follows is about the first: what its customer reads, and when it is given up.

It is given up when it has waited as long as its request says, or when too many machines have failed. Orders that
providers did not take cost nobody anything and are not counted: each offer that refused is left alone for longer each
time (`placement.RETRY_AFTER_MAX`). The moment at which it gives up
passes whether or not anybody works, so it is no reason by itself (docs/decisions/0016): after an outage of ours the
stored offers and the health of their accounts are as old as the outage. A lease is given up only on offers that
somebody has looked at lately, and only by a worker that had looked at the lease when it was due.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from control_plane.domain.deadline import LOOKED_AT_WITHIN, UNATTENDED_MAX_WITHOUT_MACHINE
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lease import Lease
from control_plane.domain.placement import RejectCode
from control_plane.domain.ranking import Ranking

L = TypeVar("L", bound=Lease)

LOOK_AGAIN_AFTER = timedelta(seconds=15)
"""The time between two looks at a lease that waits."""
REFRESHED_WITHIN = timedelta(minutes=2)
"""Offers are refreshed every 30 s. Those of an account that nobody refreshed for longer say nothing about its stock."""
ATTEMPTS_MAX = 12
"""Attempts with a machine per lease before it is given up."""


class WaitsFor(StrEnum):
    """What of ours keeps a verified machine from its customer. The machine is not to blame."""

    HUB = "hub"
    """The hub of private networks, which does not answer, or has no place left."""
    SSH_AUTHORITY = "ssh_authority"
    """The authority that signs the certificates with which we log in."""


WAITS_FOR_WORDS = {
    WaitsFor.HUB: "our hub of private networks, which cannot take it now",
    WaitsFor.SSH_AUTHORITY: "our SSH authority, which signs nothing now",
}
"""As customers read it, after `waiting for`."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    why: str


@dataclass(frozen=True, slots=True)
class KeepWaiting:
    why: str
    """Why no offer can serve it now, as one sentence."""
    due_at: datetime
    """When to look again."""


def in_turn(leases: Sequence[L]) -> list[L]:
    """The order in which leases get what offers have.

    An organization's leases with a higher priority go before its others, the oldest first. The places of other
    organizations stay theirs, so nobody gains on others by stating a high priority.
    """
    turns: dict[OrganizationId, list[L]] = {}
    for lease in leases:
        turns.setdefault(lease.organization_id, []).append(lease)
    for own in turns.values():
        own.sort(key=lambda lease: (lease.priority, -lease.created_at.timestamp(), -lease.id.int))
    return [turns[lease.organization_id].pop() for lease in leases]


def tried_too_often(attempts: int) -> GiveUp | None:
    """Why a lease is given up after so many attempts with a machine; None when it may try again."""
    return (
        GiveUp(f"{attempts} attempts failed with a machine; {ATTEMPTS_MAX} is the limit")
        if attempts >= ATTEMPTS_MAX
        else None
    )


def unserved(
    ranking: Ranking, *, due_at: datetime, gives_up_at: datetime, unrefreshed: Collection[str], now: datetime
) -> GiveUp | KeepWaiting:
    """What follows for a lease that no offer can serve now.

    `due_at` is when it was to be looked at, and `unrefreshed` are the accounts whose offers nobody looked at lately.
    A lease that nobody looked at in time is looked at once more, after loops had time to work. It waits for offers for
    UNATTENDED_MAX_WITHOUT_MACHINE at most, so one account that is never refreshed does not hold it forever.
    """
    why = waiting_why(ranking)
    if now < gives_up_at:
        return KeepWaiting(why, min(now + LOOK_AGAIN_AFTER, gives_up_at))
    if now - due_at > LOOKED_AT_WITHIN:
        return KeepWaiting(why, now + LOOKED_AT_WITHIN)
    if unrefreshed and now - gives_up_at < UNATTENDED_MAX_WITHOUT_MACHINE:
        return KeepWaiting(why, now + LOOK_AGAIN_AFTER)
    return GiveUp(f"no offer could serve it in the time that it was to wait; {_lowered(why)}")


def made_ready(why: str, *, now: datetime) -> KeepWaiting:
    """What follows for a lease for which a machine of another lease was taken back: it does not give up meanwhile."""
    return KeepWaiting(why, now + LOOK_AGAIN_AFTER)


def suspended(*, due_at: datetime, gives_up_at: datetime, now: datetime) -> GiveUp | KeepWaiting:
    """What follows for a lease whose organization is suspended: nothing is bought for it, and it waits as others do."""
    why = "The organization is suspended, so nothing is bought for it."
    return held_back(why, due_at=due_at, gives_up_at=gives_up_at, now=now)


def held_back(why: str, *, due_at: datetime, gives_up_at: datetime, now: datetime) -> GiveUp | KeepWaiting:
    """What follows for a lease for which nothing may be bought now: it waits as others do."""
    if now < gives_up_at:
        return KeepWaiting(why, min(now + LOOK_AGAIN_AFTER, gives_up_at))
    if now - due_at > LOOKED_AT_WITHIN:
        return KeepWaiting(why, now + LOOKED_AT_WITHIN)
    return GiveUp(f"it was not placed in the time that it was to wait; {_lowered(why)}")


_WAITING_WORDS = {
    RejectCode.SHAPE_DIFFERS: "smaller than the SKU promises",
    RejectCode.ARCHITECTURE_NOT_SOLD: "with a CPU that is not sold",
    RejectCode.SPOT: "only as spot capacity",
    RejectCode.ON_DEMAND: "only on demand",
    RejectCode.REGION_EXCLUDED: "in other regions",
    RejectCode.PROVIDER_EXCLUDED: "of other providers",
    RejectCode.ENVELOPE_EXCLUDED: "outside of the envelope",
    RejectCode.NETWORK_TOO_SLOW: "without a network as fast as was asked for",
    RejectCode.SOLD_OUT: "sold out",
    RejectCode.STALE: "not listed lately",
    RejectCode.COSTS_MORE_THAN_SOLD: "not sold at this price",
    RejectCode.ACCOUNT_UNHEALTHY: "of a provider that does not answer as it should",
    RejectCode.FAILED_BEFORE: "unfit in an earlier attempt",
    RejectCode.RESTING: "tried a moment ago",
    RejectCode.BLOCKED: "left alone after a refused order",
    RejectCode.YIELDED: "kept for a lease that goes first",
    RejectCode.PROOF_RECORD: "excluded because GPUs failed their proof",
}


def waiting_why(ranking: Ranking) -> str:
    """Why no offer can serve a lease now, as one sentence; the placement has the reason of each offer."""
    if not ranking.rejected:
        return "No provider lists these GPUs."
    counts: Counter[RejectCode] = Counter()
    for rejection in ranking.rejected:
        counts[rejection.code] += 1 + rejection.more
    words = [f"{count} {_WAITING_WORDS[code]}" for code, count in sorted(counts.items())]
    total = counts.total()
    return f"None of {total} {'offer' if total == 1 else 'offers'} can serve it now: {', '.join(words)}."


def _lowered(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:].rstrip(".")
