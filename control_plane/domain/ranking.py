"""Which offer to try next: every candidate in order, and every rejected offer with the reason.

Candidates are ordered by what an hour of use costs us (`effective_price.py`), then by how sure the provider is of its
stock, then by a stable key, so that the same facts always give the same order. An offer on which this lease failed
before is rejected: for a while when it had no capacity, permanently when it sold us the wrong hardware. An offer is
also rejected while a refused order of any lease covers it (`block.py`).

A marketplace lists thousands of offers of one shape. What rules them out is decided for each lot of them (`lot.py`),
and for a single offer where its own price or record says so. A ranking names the best candidates and some of the
rejected offers of each reason, and counts the others, so that it stays small enough to be stored and read.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import nsmallest
from itertools import chain
from uuid import UUID

from control_plane.domain.block import Blocks
from control_plane.domain.cpu import SOLD
from control_plane.domain.envelope import Envelope
from control_plane.domain.failure import OURS, FailReason
from control_plane.domain.lot import Lot, lot_of, order
from control_plane.domain.money import Nano, dollars_down, dollars_up
from control_plane.domain.offer_key import record_key
from control_plane.domain.placement import (
    PROOF_RECORD_MAX,
    PROOF_RECORD_WINDOW,
    RETRY_AFTER,
    RETRY_AFTER_MAX,
    STALE_AFTER,
    STALE_AFTER_UNLESS_KNOWN,
    Disproven,
    Failure,
    Offer,
    RejectCode,
    Rejection,
    pays,
)
from control_plane.domain.pool_claim import PoolChoice
from control_plane.domain.purchase import PurchaseKind, capacity_for
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import Shape, gpus_in_words

CANDIDATES_NAMED_MAX = 100
"""So many of the best candidates are named. A lease gives up after far fewer attempts."""
REJECTED_NAMED_MAX = 200
"""So many rejected offers are named, each with its sentence. Of more than that, some are named of each reason."""
NAMED_OF_REASON_MAX = 5
"""Then so many are named of those that an account's offers were rejected for, and the others are counted."""

_PASSING = frozenset(
    {
        FailReason.NO_CAPACITY,
        FailReason.QUOTA_REACHED,
        FailReason.UNAUTHORIZED,
        FailReason.LAUNCH_ANSWER_LOST,
        FailReason.NOT_TAKEN,
        FailReason.NEVER_BOOTED,
        FailReason.PROVIDER_REPORTED_FAILURE,
        FailReason.NOT_RUNNING,
        FailReason.UNREACHABLE,
        FailReason.VANISHED,
        FailReason.EVICTED,
        FailReason.UNHEALTHY,
        FailReason.NODE_FAILED,
        FailReason.NODE_LOST,
    }
)
"""Temporary failures, which say little about the next try. The others rule the offer out for this lease."""


@dataclass(frozen=True, slots=True)
class Ranking:
    candidates: tuple[Offer, ...]
    """Best first, CANDIDATES_NAMED_MAX at most."""
    rejected: tuple[Rejection, ...]
    more_candidates: int = 0
    """How many there are besides those that are named."""
    pooled: PoolChoice | None = None
    """What was decided about machines that wait in pools; None where none is for the lease's SKU."""


def rank(
    request: CapacityRequest,
    shape: Shape,
    price_nano_per_hour: Nano,
    lots: Iterable[Lot],
    *,
    failures: Mapping[str, Failure],
    unhealthy_accounts: Mapping[str, str],
    disproven: Mapping[str, Disproven],
    blocks: Blocks,
    now: datetime,
    envelopes: Sequence[Envelope] = (),
    yielded: Collection[str] = (),
) -> Ranking:
    """Order the offers that can serve `request`, and give the reason for every other one.

    `lots` hold every offer once. `failures` maps offer keys and record keys to this lease's latest failure there,
    `disproven` maps record keys to the failed GPU proofs of all leases; `blocks` are what refused orders of all leases
    cover; `unhealthy_accounts` maps account names to a sentence that explains why nothing is bought there now. Every
    one of the `envelopes` has to allow an offer's region and provider. Of the offers with the keys `yielded`, a
    machine was taken back for a lease in need, which gets the next one.
    """
    facts = _Facts(
        *(request, shape, price_nano_per_hour, failures, unhealthy_accounts, disproven, blocks, now),
        *(envelopes, yielded),
    )
    candidates: list[Lot] = []
    rejected: dict[tuple[RejectCode, str], list[Offer]] = {}
    for lot in lots:
        for code, alike in facts.sort(lot):
            if code is None:
                candidates.append(alike)
            else:
                rejected.setdefault((code, alike.account), []).extend(alike.offers)
    best = _best(candidates)
    every = sum(map(len, rejected.values())) <= REJECTED_NAMED_MAX
    named = [
        rejection
        for (code, _), alike in rejected.items()
        for rejection in _rejections(code, alike, facts, every=every or code in _OF_ONE_OFFER)
    ]
    found = sum(len(lot.offers) for lot in candidates)
    return Ranking(best, tuple(sorted(named, key=_rejection_order)), found - len(best))


def _best(lots: Sequence[Lot]) -> tuple[Offer, ...]:
    """The best offers of all lots. Not more lots than that can have one: each of the others begins with a worse one."""
    begin_best = nsmallest(CANDIDATES_NAMED_MAX, lots, key=lambda lot: lot.best)
    offers = chain.from_iterable(lot.offers for lot in begin_best)
    return tuple(nsmallest(CANDIDATES_NAMED_MAX, offers, key=order))


def digest(ranking: Ranking) -> bytes:
    """SHA-256 of what a ranking decides: the order of the candidates, the code of each rejection, and all costs.

    The sentences are left out, because some of them count seconds, and so are the numbers of offers that are not named,
    which change with every listing of a marketplace. Two rankings with the same digest are the same decision.
    """
    decided: list[object] = [[(offer.key, offer.cost_nano_per_hour) for offer in ranking.candidates]]
    rejected = [
        (rejection.offer.key, rejection.code, rejection.offer.cost_nano_per_hour)
        for rejection in ranking.rejected
    ]
    decided.append(rejected)
    if ranking.pooled is not None:
        pooled = ranking.pooled
        unfit = sorted((each.machine_id.hex, each.code) for each in pooled.unfit)
        decided.append([None if pooled.machine_id is None else pooled.machine_id.hex, unfit])
    return hashlib.sha256(json.dumps(decided).encode()).digest()


def is_news(ranking: Ranking, last: bytes | None) -> bool:
    """Whether a ranking has to be stored. `last` is the digest of the lease's last one, None before the first.

    A ranking with a candidate or a machine of a pool places the lease, and every placement is stored. A waiting lease
    is ranked every few seconds, and its ranking is stored only when it changes.
    """
    claims = ranking.pooled is not None and ranking.pooled.machine_id is not None
    return claims or bool(ranking.candidates) or digest(ranking) != last


def _rejection_order(rejection: Rejection) -> tuple[str, str]:
    return (rejection.code, rejection.offer.key)


def _rejections(
    code: RejectCode, offers: Sequence[Offer], facts: "_Facts", *, every: bool
) -> list[Rejection]:
    """Those of one reason and account: every one, or some and the number of the others."""
    most = len(offers) if every else NAMED_OF_REASON_MAX
    named = nsmallest(most, offers, key=lambda offer: offer.key)
    last = len(named) - 1
    return [
        Rejection(
            offer,
            code,
            facts.why(offer, code),
            facts.proofs(offer, code),
            len(offers) - len(named) if number == last else 0,
        )
        for number, offer in enumerate(named)
    ]


_OF_ONE_OFFER = frozenset({RejectCode.FAILED_BEFORE, RejectCode.RESTING, RejectCode.PROOF_RECORD})
"""What happened with machines of the offer itself, so that each such offer is named."""


@dataclass(slots=True)
class _Facts:
    """What offers are held against. The code is found for every lot, its sentence only for offers that are named."""

    request: CapacityRequest
    shape: Shape
    price_nano_per_hour: Nano
    failures: Mapping[str, Failure]
    unhealthy_accounts: Mapping[str, str]
    disproven: Mapping[str, Disproven]
    blocks: Blocks
    now: datetime
    envelopes: Sequence[Envelope]
    yielded: Collection[str]
    _places: dict[tuple[str, str], "_OfPlace"] = field(default_factory=dict[tuple[str, str], "_OfPlace"])

    def sort(self, lot: Lot) -> Iterator[tuple[RejectCode | None, Lot]]:
        """The lot in parts, each with why it cannot serve the request now; None when it can.

        An offer that several rules reject has the code of the first one: the rules that depend on its price come
        between those on its kind and those on its place and stock, and those on its record come last.
        """
        place = self._places.get((lot.provider, lot.region)) or self._look_at_place(lot)
        code = self._of_another_kind(lot) or place.excluded or self._too_slow(lot)
        if code is None and lot.cost_nano_per_hour_max > self.price_nano_per_hour:
            dear = [offer for offer in lot.offers if not pays(offer, self.price_nano_per_hour)]
            yield RejectCode.COSTS_MORE_THAN_SOLD, lot_of(dear)
            if len(dear) == len(lot.offers):
                return
            lot = lot_of(offer for offer in lot.offers if pays(offer, self.price_nano_per_hour))
        code = code or place.closed or self._not_bought(lot)
        if code is None and (self.failures or self.blocks.scopes or self.disproven or self.yielded):
            yield from self._by_record(lot)
        else:
            yield code, lot

    def _by_record(self, lot: Lot) -> Iterator[tuple[RejectCode | None, Lot]]:
        parts: dict[RejectCode | None, list[Offer]] = {}
        for offer in lot.offers:
            parts.setdefault(self._record(offer), []).append(offer)
        for code, offers in parts.items():
            yield code, lot if len(parts) == 1 else lot_of(offers)

    def _look_at_place(self, lot: Lot) -> "_OfPlace":
        """Few places have many offers, so what holds for a place is found out once."""
        outside = _outside(lot, self.envelopes) is not None
        place = _OfPlace(self._excluded(lot), RejectCode.ENVELOPE_EXCLUDED if outside else None)
        self._places[lot.provider, lot.region] = place
        return place

    def _excluded(self, lot: Lot) -> RejectCode | None:
        if not self.request.allows_region(lot.region):
            return RejectCode.REGION_EXCLUDED
        return None if self.request.allows_provider(lot.provider) else RejectCode.PROVIDER_EXCLUDED

    def _too_slow(self, lot: Lot) -> RejectCode | None:
        return None if self.request.allows_network(lot.network_gbps) else RejectCode.NETWORK_TOO_SLOW

    def _of_another_kind(self, lot: Lot) -> RejectCode | None:
        if lot.architecture not in SOLD:
            return RejectCode.ARCHITECTURE_NOT_SOLD
        if lot.purchase is not capacity_for(self.request.purchase):
            return RejectCode.SPOT if lot.purchase is PurchaseKind.SPOT else RejectCode.ON_DEMAND
        if not lot.orderable:
            return RejectCode.SPOT
        return None if lot.shape.holds(self.shape) else RejectCode.SHAPE_DIFFERS

    def _not_bought(self, lot: Lot) -> RejectCode | None:
        if lot.account in self.unhealthy_accounts:
            return RejectCode.ACCOUNT_UNHEALTHY
        if self.now > lot.stale_after:
            return RejectCode.STALE
        return None if lot.available else RejectCode.SOLD_OUT

    def _record(self, offer: Offer) -> RejectCode | None:
        """What happened on the offer itself, and what was refused there."""
        return (
            (RejectCode.YIELDED if offer.key in self.yielded else None)
            or (self._failed_here(offer) if self.failures else None)
            or (RejectCode.BLOCKED if self.blocks.scopes and self.blocks.of(offer) else None)
            or (self._disproven(offer) if self.disproven else None)
        )

    def _failed_here(self, offer: Offer) -> RejectCode | None:
        for failure in self._failures(offer):
            if failure.reason not in _PASSING:
                return RejectCode.FAILED_BEFORE
            if self.now < failure.at + _rests(failure):
                return RejectCode.RESTING
        return None

    def _failures(self, offer: Offer) -> list[Failure]:
        """Of this lease, with the supplier's machines first, without those that are our fault."""
        keys = dict.fromkeys((record_key(offer.key), offer.key))
        found = [self.failures[key] for key in keys if key in self.failures]
        return [failure for failure in found if failure.reason not in OURS]

    def failure(self, offer: Offer, code: RejectCode) -> Failure:
        """The failure that is the reason."""
        found = self._failures(offer)
        if code is RejectCode.FAILED_BEFORE:
            return next(each for each in found if each.reason not in _PASSING)
        return next(each for each in found if self.now < each.at + _rests(each))

    def _disproven(self, offer: Offer) -> RejectCode | None:
        record = self.disproven.get(record_key(offer.key))
        return None if record is None or len(record.proofs) < PROOF_RECORD_MAX else RejectCode.PROOF_RECORD

    def proofs(self, offer: Offer, code: RejectCode) -> tuple[UUID, ...]:
        """The failed proofs, where they are the reason."""
        return self.disproven[record_key(offer.key)].proofs if code is RejectCode.PROOF_RECORD else ()

    def why(self, offer: Offer, code: RejectCode) -> str:
        """The sentence to a code that `rejects` found."""
        return _SENTENCES[code](offer, self)

    def seconds_until(self, at: datetime) -> int:
        return int((at - self.now).total_seconds())


@dataclass(frozen=True, slots=True)
class _OfPlace:
    """What holds for every offer of one provider in one region."""

    excluded: RejectCode | None
    """By the request."""
    closed: RejectCode | None
    """By the envelopes."""


def _spot(offer: Offer, facts: _Facts) -> str:
    if offer.purchase is facts.request.purchase:
        return "It is spot capacity, which is not ordered from this provider."
    if facts.request.purchase is PurchaseKind.ON_DEMAND:
        return "It is spot capacity; the lease is on demand."
    return f"It is spot capacity; the machine of a lease that is {facts.request.purchase} is on demand."


def _stale_after(offer: Offer) -> timedelta:
    return STALE_AFTER.get(offer.confidence, STALE_AFTER_UNLESS_KNOWN)


def _rests(failure: Failure) -> timedelta:
    doubled: timedelta = RETRY_AFTER * 2 ** min(failure.times - 1, 8)
    return min(doubled, RETRY_AFTER_MAX)


def _outside(offer: Offer | Lot, envelopes: Iterable[Envelope]) -> str | None:
    """Which envelope does not allow the offer's place, as a sentence; None when all do."""
    for envelope in envelopes:
        if not envelope.allows_region(offer.region):
            return f"The envelope of the lease allows these regions: {_words(envelope.regions)}."
        if not envelope.allows_provider(offer.provider):
            return f"The envelope of the lease allows these providers: {_words(envelope.providers)}."
    return None


def _words(allowed: Iterable[str] | None) -> str:
    return ", ".join(sorted(allowed or ())) or "none"


def _shape_differs(offer: Offer, facts: _Facts) -> str:
    return f"{offer.native_type} is {_describe(offer.shape)}; the SKU promises {_describe(facts.shape)}."


def _too_slow(offer: Offer, facts: _Facts) -> str:
    states = "does not state its network"
    if offer.network_gbps is not None:
        states = f"has {offer.network_gbps:,} Gbit/s between machines"
    return f"{offer.native_type} {states}; the request is for {facts.request.network_gbps_min:,} Gbit/s at least."


def _costs_more(offer: Offer, facts: _Facts) -> str:
    cost, sold = dollars_up(offer.cost_nano_per_hour), dollars_down(facts.price_nano_per_hour)
    return f"It costs us {cost} USD per hour and is sold at {sold} USD."


def _stale(offer: Offer, facts: _Facts) -> str:
    limit = int(_stale_after(offer).total_seconds())
    return f"It was last seen {-facts.seconds_until(offer.observed_at)} s ago; {limit} s is the limit."


def _resting(offer: Offer, facts: _Facts) -> str:
    failure = facts.failure(offer, RejectCode.RESTING)
    seconds = facts.seconds_until(failure.at + _rests(failure))
    return f"This lease failed there ({failure.reason}); again in {seconds} s."


def _blocked(offer: Offer, facts: _Facts) -> str:
    block = facts.blocks.of(offer)
    if block is None:
        raise LookupError(f"no block covers {offer.key}")
    seconds = facts.seconds_until(block.until)
    return (
        f"The provider refused an order ({block.reason}); {block.subject} is left alone for {seconds} s more."
    )


def _proof_record(offer: Offer, facts: _Facts) -> str:
    hours = int(PROOF_RECORD_WINDOW.total_seconds() // 3600)
    count = len(facts.disproven[record_key(offer.key)].proofs)
    return f"{count} of its machines failed their GPU proof within {hours} h."


_SENTENCES: Mapping[RejectCode, Callable[[Offer, _Facts], str]] = {
    RejectCode.ARCHITECTURE_NOT_SOLD: lambda offer, _: (
        f"Its CPU is {offer.architecture}; machines are sold with {' or '.join(sorted(SOLD))}."
    ),
    RejectCode.SPOT: _spot,
    RejectCode.ON_DEMAND: lambda _, __: "It is sold on demand; the lease is spot.",
    RejectCode.SHAPE_DIFFERS: _shape_differs,
    RejectCode.REGION_EXCLUDED: lambda _, facts: f"The request is for {' or '.join(facts.request.regions)}.",
    RejectCode.PROVIDER_EXCLUDED: lambda _, facts: (
        f"The request is for {' or '.join(facts.request.providers)}."
    ),
    RejectCode.NETWORK_TOO_SLOW: _too_slow,
    RejectCode.COSTS_MORE_THAN_SOLD: _costs_more,
    RejectCode.ENVELOPE_EXCLUDED: lambda offer, facts: _outside(offer, facts.envelopes) or "",
    RejectCode.ACCOUNT_UNHEALTHY: lambda offer, facts: facts.unhealthy_accounts[offer.account],
    RejectCode.STALE: _stale,
    RejectCode.SOLD_OUT: lambda offer, _: f"{offer.provider} lists no stock in {offer.region}.",
    RejectCode.FAILED_BEFORE: lambda offer, facts: (
        f"This lease failed there: {facts.failure(offer, RejectCode.FAILED_BEFORE).reason}."
    ),
    RejectCode.RESTING: _resting,
    RejectCode.BLOCKED: _blocked,
    RejectCode.YIELDED: lambda _, __: (
        "A machine there was taken back for a lease in need, which gets the next one."
    ),
    RejectCode.PROOF_RECORD: _proof_record,
}


def _describe(shape: Shape) -> str:
    size = f"{shape.vcpus} vCPUs, {shape.memory_gib} GiB memory, {shape.disk_gib} GiB disk"
    gpus = gpus_in_words(shape.gpu_model, shape.gpu_count)
    return f"{size}, {gpus}" if shape.gpu_model is None else f"{gpus}, {size}"
