"""What a refused order says about other orders: what nobody orders again for a while, and for how long.

A provider that is sold out of one machine type in one region says so to the first lease that orders it. Without a
block, every other lease would ask again, and use up the few launches that a provider allows in a minute. A block
covers no more than what was refused, and ends by itself.

`CONSEQUENCES` maps every reason for a failure to its scope. An adapter knows better in some cases, for example that
a quota counts for the whole account; the scope that its error names then wins.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from control_plane.domain.failure import FailReason
from control_plane.domain.purchase import kind_of


class BlockScope(StrEnum):
    """What is not ordered for a while, from the narrowest to the widest. All but the last concern one account."""

    OFFER = "offer"
    """One machine type in one place."""
    TYPE = "type"
    """One machine type, wherever it is."""
    ZONE = "zone"
    """Everything in one place in the provider's terms: a zone where its orders name zones, otherwise a region."""
    REGION = "region"
    """Everything in one of our regions, with all of its zones."""
    ACCOUNT = "account"
    """Everything that the account could order."""
    PROVIDER = "provider"
    """Everything at the provider, by any account."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a failure means for the orders of other leases."""

    scope: BlockScope
    lasts: timedelta


# fmt: off
CONSEQUENCES: Mapping[FailReason, Consequence | None] = {
    # Karpenter's cache of unavailable offerings keeps an entry for 3 minutes, too.
    FailReason.NO_CAPACITY:   Consequence(BlockScope.OFFER,   timedelta(minutes=3)),
    # Quotas are counted per region by most providers. One is free again as soon as a machine of ours ends.
    FailReason.QUOTA_REACHED: Consequence(BlockScope.REGION,  timedelta(minutes=5)),
    # The offer is gone, or we order it wrongly: waiting does not help soon.
    FailReason.ORDER_REFUSED: Consequence(BlockScope.OFFER,   timedelta(minutes=15)),
    FailReason.UNAUTHORIZED:  Consequence(BlockScope.ACCOUNT, timedelta(minutes=5)),
    FailReason.NOT_TAKEN:     Consequence(BlockScope.ACCOUNT, timedelta(minutes=1)),

    # The order was taken, so these say something about one machine. Offers whose machines fail often are ranked lower.
    FailReason.LAUNCH_ANSWER_LOST: None,
    FailReason.NEVER_BOOTED: None,
    FailReason.PROVIDER_REPORTED_FAILURE: None,
    FailReason.NOT_RUNNING: None,
    FailReason.UNREACHABLE: None,
    FailReason.HOST_KEY_CHANGED: None,
    FailReason.SETUP_FAILED: None,
    FailReason.GPU_MISMATCH: None,
    FailReason.NODE_FAILED: None,
    FailReason.NODE_LOST: None,
    FailReason.NODE_HOSTILE: None,
    FailReason.VANISHED: None,
    FailReason.UNHEALTHY: None,
    # Others may keep theirs. What is sold out refuses the next order by itself.
    FailReason.EVICTED: None,
    # The record of failed proofs excludes an offer by itself (placement.PROOF_RECORD_MAX).
    FailReason.PROOF_FAILED: None,
    FailReason.PROOF_EMULATED: None,
    # Neither the machine nor its provider is to blame.
    FailReason.NOT_ATTENDED: None,
    FailReason.LEASE_ENDED: None,
}
# fmt: on
REFUSED = frozenset(reason for reason, consequence in CONSEQUENCES.items() if consequence is not None)
"""Reasons for which a provider never took the order, so that there was no machine."""


class Placed(Protocol):
    """Where something is ordered: an offer, a machine, or what a block was made for."""

    @property
    def provider(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def region(self) -> str: ...
    @property
    def native_region(self) -> str: ...
    @property
    def native_type(self) -> str: ...
    @property
    def spot(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Block:
    """A refused order, and what is not ordered because of it until it ends."""

    scope: BlockScope
    provider: str
    account: str
    region: str
    native_region: str
    native_type: str
    spot: bool
    """Whether the order was for spot capacity. What is sold out so may be had on demand, and the other way round."""
    reason: FailReason
    since: datetime
    until: datetime

    @property
    def subject(self) -> str:
        """What it covers, in words."""
        kind = " as spot" if self.spot else ""
        return {
            BlockScope.OFFER: f"{self.native_type}{kind} in {self.native_region}",
            BlockScope.TYPE: f"{self.native_type}{kind} in all regions",
            BlockScope.ZONE: f"everything{kind} in {self.native_region}",
            BlockScope.REGION: f"everything{kind} in {self.region}",
            BlockScope.ACCOUNT: f"everything by the account {self.account}",
            BlockScope.PROVIDER: f"everything at {self.provider}",
        }[self.scope]


def block_after(
    place: Placed, reason: FailReason, *, now: datetime, scope: BlockScope | None = None
) -> Block | None:
    """The block that follows from a failed order at `place`; None when it says nothing about other orders.

    `scope` is what the provider's answer said, None when it did not say.
    """
    consequence = CONSEQUENCES[reason]
    if consequence is None:
        return None
    return Block(
        scope=scope or consequence.scope,
        provider=place.provider,
        account=place.account,
        region=place.region,
        native_region=place.native_region,
        native_type=place.native_type,
        spot=place.spot,
        reason=reason,
        since=now,
        until=now + consequence.lasts,
    )


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks in force, by what they cover."""

    by_subject: Mapping[tuple[str, ...], Block] = field(default_factory=dict[tuple[str, ...], Block])
    scopes: tuple[BlockScope, ...] = ()
    """Those that occur."""

    def of(self, offer: Placed) -> Block | None:
        """The block that covers an offer and ends last; None when it may be ordered."""
        found = [self.by_subject.get(_subject(scope, offer)) for scope in self.scopes]
        return max((block for block in found if block is not None), key=_end, default=None)


def in_force(blocks: Iterable[Block], now: datetime) -> Blocks:
    """The blocks that have not ended; of those that cover the same, the one that ends last."""
    kept: dict[tuple[str, ...], Block] = {}
    for block in blocks:
        if block.until > now:
            subject = _subject(block.scope, block)
            kept[subject] = max(kept.get(subject, block), block, key=_end)
    return Blocks(kept, tuple(sorted({block.scope for block in kept.values()})))


def why_not_ordered(block: Block) -> str:
    """Why an order that is covered by a block is given up before its provider was asked, as customers read it."""
    return f"another order of {block.subject} was refused lately ({block.reason}), so this one was not sent"


def _subject(scope: BlockScope, place: Placed) -> tuple[str, ...]:
    """Stock and quotas differ by purchase kind; whether an account or a provider takes orders does not."""
    kind = kind_of(spot=place.spot)
    match scope:
        case BlockScope.OFFER:
            return (scope, kind, place.account, place.region, place.native_region, place.native_type)
        case BlockScope.TYPE:
            return (scope, kind, place.account, place.native_type)
        case BlockScope.ZONE:
            return (scope, kind, place.account, place.region, place.native_region)
        case BlockScope.REGION:
            return (scope, kind, place.account, place.region)
        case BlockScope.ACCOUNT:
            return (scope, place.account)
        case BlockScope.PROVIDER:
            return (scope, place.provider)


def _end(block: Block) -> tuple[datetime, str]:
    return (block.until, block.reason)
