"""Which offer to try next: every candidate in order, and every rejected offer with the reason.

Candidates are ordered by what an hour of use costs us (`effective_price.py`), then by how sure the provider is of its
stock, then by a stable key, so that the same facts always give the same order. An offer on which this lease failed
before is rejected: for a while when it had no capacity, permanently when it sold us the wrong hardware. An offer is
also rejected while a refused order of any lease covers it (`block.py`).

`serves` decides which SKUs an offer can be sold as, for placement and for the catalogue alike.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.admission import ListPrice
from control_plane.domain.block import Blocks
from control_plane.domain.cpu import SOLD, Architecture
from control_plane.domain.effective_price import History, Terms, effective_nano_per_hour
from control_plane.domain.envelope import Envelope
from control_plane.domain.failure import OURS, FailReason
from control_plane.domain.firewall import ProviderFirewall
from control_plane.domain.money import Nano, dollars_down, dollars_up
from control_plane.domain.power_action import PowerAction
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import Shape, gpus_in_words
from control_plane.domain.tariff import stopped_price

STALE_AFTER = {
    "live": timedelta(minutes=5),
    "advisory": timedelta(minutes=15),
    "static": timedelta(hours=1),
}
"""By confidence: an offer that was last seen longer ago is not bought. The more a listing says about stock, the sooner
it is outdated; a static one says prices alone. dstack's hourly and SkyPilot's 7-hour catalogues sell capacity that is
long gone."""
STALE_AFTER_UNLESS_KNOWN = min(STALE_AFTER.values())
HISTORY_WINDOW = timedelta(hours=24)
"""How far back the history of an offer goes."""
RETRY_AFTER = timedelta(minutes=2)
"""How long a lease avoids an offer on which it failed for a temporary reason; twice as long after each further time."""
RETRY_AFTER_MAX = timedelta(minutes=15)
PROOF_RECORD_WINDOW = timedelta(hours=24)
PROOF_RECORD_MAX = 2
"""An offer is rejected when this many of its machines were terminated for their GPU proof within the window."""
OFFERED_WITHIN = timedelta(days=7)
"""A SKU counts as offered when an offer that can serve it was listed at most this long ago, sold out or not."""

_PASSING = frozenset(
    {
        FailReason.NO_CAPACITY,
        FailReason.QUOTA_REACHED,
        FailReason.UNAUTHORIZED,
        FailReason.LAUNCH_ANSWER_LOST,
        FailReason.NOT_TAKEN,
        FailReason.NEVER_BOOTED,
        FailReason.PROVIDER_REPORTED_FAILURE,
        FailReason.UNREACHABLE,
        FailReason.VANISHED,
        FailReason.EVICTED,
        FailReason.NODE_FAILED,
        FailReason.NODE_LOST,
    }
)
"""Temporary failures, which say little about the next try. The others rule the offer out for this lease."""


class RejectCode(StrEnum):
    SHAPE_DIFFERS = "shape_differs"
    ARCHITECTURE_NOT_SOLD = "architecture_not_sold"
    """Its CPU is one on which we are not known to run."""
    SPOT = "spot"
    """The provider may take its machine back. What we sell is on demand."""
    REGION_EXCLUDED = "region_excluded"
    PROVIDER_EXCLUDED = "provider_excluded"
    ENVELOPE_EXCLUDED = "envelope_excluded"
    """An envelope allows neither its region nor its provider, or only one of them."""
    SOLD_OUT = "sold_out"
    STALE = "stale"
    COSTS_MORE_THAN_SOLD = "costs_more_than_sold"
    ACCOUNT_UNHEALTHY = "account_unhealthy"
    FAILED_BEFORE = "failed_before"
    RESTING = "resting"
    BLOCKED = "blocked"
    """An order of another lease was refused, and the refusal covers this offer."""
    PROOF_RECORD = "proof_record"
    """Its machines failed their GPU proof lately."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A provider's capacity at a price, with its age. The key names it across refreshes."""

    key: str
    account: str
    provider: str
    region: str
    native_region: str
    native_type: str
    shape: Shape
    capacity: str
    cost_nano_per_hour: Nano
    available: bool
    confidence: str
    observed_at: datetime
    architecture: Architecture = Architecture.X86_64
    spot: bool = False
    """Whether the provider may take the machine back."""
    eviction_notice_seconds: int | None = None
    """How long before that it says so; None where it does not, and for offers on demand."""
    price_source: str = "listing"
    network_gbps: int | None = None
    """Gigabits per second between machines; None where the listing does not say."""
    ephemeral_gib: int | None = None
    """Local disk besides that of the shape, whose content ends with the machine; None where it is not listed."""
    power: tuple[PowerAction, ...] = ()
    """What can be done with the power of its machine."""
    firewall: ProviderFirewall = ProviderFirewall.NONE
    """What the provider filters before its machine."""
    stopped_cost_nano_per_hour: Nano | None = None
    """What the provider bills while the machine is stopped; None when it is the same."""
    terms: Terms = field(default_factory=Terms)
    history: History = field(default_factory=History)

    @property
    def effective_nano_per_hour(self) -> Nano:
        """What an hour of use costs us, by which it is ranked."""
        return effective_nano_per_hour(self.cost_nano_per_hour, self.terms, self.history)


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt of this lease that failed on this offer."""

    reason: FailReason
    at: datetime
    times: int = 1
    """How many attempts of this lease have failed on the offer by now."""


@dataclass(frozen=True, slots=True)
class Disproven:
    """The machines of one offer that were terminated for their GPU proof within PROOF_RECORD_WINDOW."""

    proofs: tuple[UUID, ...]
    """For each machine, the failed proof that was the reason."""


@dataclass(frozen=True, slots=True)
class Rejection:
    offer: Offer
    code: RejectCode
    why: str
    proofs: tuple[UUID, ...] = ()
    """The failed proofs, where they are the reason."""


@dataclass(frozen=True, slots=True)
class Ranking:
    candidates: tuple[Offer, ...]
    """Best first."""
    rejected: tuple[Rejection, ...]


_CONFIDENCE_ORDER = {"live": 0, "advisory": 1, "static": 2}


def rank(
    request: CapacityRequest,
    shape: Shape,
    price_nano_per_hour: Nano,
    offers: Iterable[Offer],
    *,
    failures: Mapping[str, Failure],
    unhealthy_accounts: Mapping[str, str],
    disproven: Mapping[str, Disproven],
    blocks: Blocks,
    now: datetime,
    envelopes: Sequence[Envelope] = (),
) -> Ranking:
    """Order the offers that can serve `request`, and give the reason for every other one.

    `failures` maps offer keys to this lease's latest failure there, `disproven` to the failed GPU proofs of
    all leases; `blocks` are what refused orders of all leases cover; `unhealthy_accounts` maps account names to a
    sentence that explains why nothing is bought there now. Every one of the `envelopes` has to allow an offer's
    region and provider.
    """
    candidates: list[Offer] = []
    rejected: list[Rejection] = []
    for offer in offers:
        refusal = (
            _does_not_fit(request, shape, price_nano_per_hour, offer)
            or _outside(offer, envelopes)
            or _cannot_be_bought(offer, unhealthy_accounts, now)
            or _failed_here(offer, failures.get(offer.key), now)
            or _blocked(offer, blocks, now)
            or _disproven(offer, disproven.get(offer.key))
        )
        if refusal is None:
            candidates.append(offer)
        else:
            rejected.append(refusal)
    candidates.sort(key=_order)
    rejected.sort(key=_rejection_order)
    return Ranking(tuple(candidates), tuple(rejected))


def serves(offer: Offer, price: ListPrice) -> bool:
    """Whether an offer can be sold as this SKU at this price."""
    return _is_sold(offer) and offer.shape.holds(price.sku.shape) and _pays(offer, price.nano_per_hour)


def _is_sold(offer: Offer) -> bool:
    """Whether we sell such machines at all."""
    return offer.architecture in SOLD and not offer.spot


def _pays(offer: Offer, price_nano_per_hour: Nano) -> bool:
    """Whether it costs us at most what it is sold for."""
    return offer.cost_nano_per_hour <= price_nano_per_hour


@dataclass(frozen=True, slots=True)
class SoldAs:
    """The SKUs that an offer can be sold as."""

    skus: tuple[str, ...]
    """In the order of the price book."""
    nano_per_hour: Nano | None
    """The highest of their prices; None when there is no such SKU."""
    stopped_nano_per_hour: Nano | None
    """The price of that SKU while the machine is stopped; None also where the provider stops none."""


def stopped_nano_per_hour(offer: Offer, price: ListPrice) -> Nano | None:
    """What a machine of this offer costs while it is stopped, sold at this price; None when it cannot be stopped."""
    if PowerAction.STOP not in offer.power:
        return None
    stopped = offer.stopped_cost_nano_per_hour
    cost = offer.cost_nano_per_hour if stopped is None else stopped
    units = price.sku.shape.units
    return Nano(stopped_price(price.nano_per_unit_hour, price.stopped_nano, cost, units) * units)


def sold_as(offer: Offer, book: Iterable[ListPrice]) -> SoldAs:
    """Every SKU of a price book that the offer serves."""
    served = [price for price in book if serves(offer, price)]
    highest = max(served, key=lambda price: price.nano_per_hour, default=None)
    if highest is None:
        return SoldAs((), None, None)
    names = tuple(price.sku.name for price in served)
    return SoldAs(names, highest.nano_per_hour, stopped_nano_per_hour(offer, highest))


def digest(ranking: Ranking) -> bytes:
    """SHA-256 of what a ranking decides: the order of the candidates, the code of each rejection, and all costs.

    The sentences are left out, because some of them count seconds. Two rankings with the same digest are the
    same decision on the same offers.
    """
    candidates = [(offer.key, offer.cost_nano_per_hour) for offer in ranking.candidates]
    rejected = [
        (rejection.offer.key, rejection.code, rejection.offer.cost_nano_per_hour)
        for rejection in ranking.rejected
    ]
    return hashlib.sha256(json.dumps([candidates, rejected]).encode()).digest()


def is_news(ranking: Ranking, last: bytes | None) -> bool:
    """Whether a ranking has to be stored. `last` is the digest of the lease's last one, None before the first.

    A ranking with a candidate places the lease, and every placement is stored. A waiting lease is ranked every few
    seconds, and its ranking is stored only when it changes.
    """
    return bool(ranking.candidates) or digest(ranking) != last


def _order(offer: Offer) -> tuple[int, int, str]:
    return (offer.effective_nano_per_hour, _CONFIDENCE_ORDER.get(offer.confidence, 3), offer.key)


def _rejection_order(rejection: Rejection) -> tuple[str, str]:
    return (rejection.code, rejection.offer.key)


def _does_not_fit(
    request: CapacityRequest, shape: Shape, price_nano_per_hour: Nano, offer: Offer
) -> Rejection | None:
    return (
        _not_sold(offer)
        or _too_small(offer, shape)
        or _excluded(offer, request)
        or _too_expensive(offer, price_nano_per_hour)
    )


def _not_sold(offer: Offer) -> Rejection | None:
    if offer.architecture not in SOLD:
        why = f"Its CPU is {offer.architecture}; machines are sold with {' or '.join(sorted(SOLD))}."
        return Rejection(offer, RejectCode.ARCHITECTURE_NOT_SOLD, why)
    if offer.spot:
        return Rejection(offer, RejectCode.SPOT, "It is spot capacity; leases are on demand.")
    return None


def _too_small(offer: Offer, shape: Shape) -> Rejection | None:
    if offer.shape.holds(shape):
        return None
    why = f"{offer.native_type} is {_describe(offer.shape)}; the SKU promises {_describe(shape)}."
    return Rejection(offer, RejectCode.SHAPE_DIFFERS, why)


def _excluded(offer: Offer, request: CapacityRequest) -> Rejection | None:
    if not request.allows_region(offer.region):
        why = f"The request is for {' or '.join(request.regions)}."
        return Rejection(offer, RejectCode.REGION_EXCLUDED, why)
    if not request.allows_provider(offer.provider):
        why = f"The request is for {' or '.join(request.providers)}."
        return Rejection(offer, RejectCode.PROVIDER_EXCLUDED, why)
    return None


def _outside(offer: Offer, envelopes: Iterable[Envelope]) -> Rejection | None:
    for envelope in envelopes:
        if not envelope.allows_region(offer.region):
            why = f"The envelope of the lease allows these regions: {_words(envelope.regions)}."
            return Rejection(offer, RejectCode.ENVELOPE_EXCLUDED, why)
        if not envelope.allows_provider(offer.provider):
            why = f"The envelope of the lease allows these providers: {_words(envelope.providers)}."
            return Rejection(offer, RejectCode.ENVELOPE_EXCLUDED, why)
    return None


def _words(allowed: Iterable[str] | None) -> str:
    return ", ".join(sorted(allowed or ())) or "none"


def _too_expensive(offer: Offer, price_nano_per_hour: Nano) -> Rejection | None:
    if _pays(offer, price_nano_per_hour):
        return None
    why = (
        f"It costs us {dollars_up(offer.cost_nano_per_hour)} USD per hour and is sold at"
        f" {dollars_down(price_nano_per_hour)} USD."
    )
    return Rejection(offer, RejectCode.COSTS_MORE_THAN_SOLD, why)


def _cannot_be_bought(offer: Offer, unhealthy_accounts: Mapping[str, str], now: datetime) -> Rejection | None:
    if offer.account in unhealthy_accounts:
        return Rejection(offer, RejectCode.ACCOUNT_UNHEALTHY, unhealthy_accounts[offer.account])
    age = now - offer.observed_at
    stale_after = STALE_AFTER.get(offer.confidence, STALE_AFTER_UNLESS_KNOWN)
    if age > stale_after:
        seconds, limit = int(age.total_seconds()), int(stale_after.total_seconds())
        why = f"It was last seen {seconds} s ago; {limit} s is the limit."
        return Rejection(offer, RejectCode.STALE, why)
    if not offer.available:
        return Rejection(offer, RejectCode.SOLD_OUT, f"{offer.provider} lists no stock in {offer.region}.")
    return None


def _failed_here(offer: Offer, failure: Failure | None, now: datetime) -> Rejection | None:
    if failure is None or failure.reason in OURS:
        return None
    if failure.reason not in _PASSING:
        return Rejection(offer, RejectCode.FAILED_BEFORE, f"This lease failed there: {failure.reason}.")
    rests = min(RETRY_AFTER * 2 ** min(failure.times - 1, 8), RETRY_AFTER_MAX)
    if now - failure.at < rests:
        seconds = int((rests - (now - failure.at)).total_seconds())
        return Rejection(
            offer, RejectCode.RESTING, f"This lease failed there ({failure.reason}); again in {seconds} s."
        )
    return None


def _blocked(offer: Offer, blocks: Blocks, now: datetime) -> Rejection | None:
    block = blocks.of(offer)
    if block is None:
        return None
    seconds = int((block.until - now).total_seconds())
    why = (
        f"The provider refused an order ({block.reason}); {block.subject} is left alone for {seconds} s more."
    )
    return Rejection(offer, RejectCode.BLOCKED, why)


def _disproven(offer: Offer, record: Disproven | None) -> Rejection | None:
    if record is None or len(record.proofs) < PROOF_RECORD_MAX:
        return None
    hours = int(PROOF_RECORD_WINDOW.total_seconds() // 3600)
    why = f"{len(record.proofs)} of its machines failed their GPU proof within {hours} h."
    return Rejection(offer, RejectCode.PROOF_RECORD, why, record.proofs)


def _describe(shape: Shape) -> str:
    size = f"{shape.vcpus} vCPUs, {shape.memory_gib} GiB memory, {shape.disk_gib} GiB disk"
    gpus = gpus_in_words(shape.gpu_model, shape.gpu_count)
    return f"{size}, {gpus}" if shape.gpu_model is None else f"{gpus}, {size}"
