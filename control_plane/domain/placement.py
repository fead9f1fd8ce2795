"""Which machine to try next: every candidate in order, and every rejected one with the reason.

Order: what we pay, then how sure the provider is of its stock, then a stable key, so that the same
facts always give the same order. A candidate that failed this lease before comes last or not at
all: an offer that had no capacity may be tried again after a pause, an offer that sold us the
wrong hardware never.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.failure import FailReason
from control_plane.domain.money import Nano, usd
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import Shape

OFFER_STALE_AFTER = timedelta(minutes=15)
"""A price older than this is not sold: dstack's hourly and SkyPilot's 7-hour catalogues sell ghosts."""
RETRY_AFTER = timedelta(minutes=2)
"""How long an offer that failed for a passing reason rests, per lease."""
PROOF_RECORD_WINDOW = timedelta(hours=24)
PROOF_RECORD_MAX = 2
"""An offer of which so many machines were ended for their GPU proof within the window is passed over."""
ATTEMPTS_MAX = 12
"""Attempts per lease before it is given up."""

_PASSING = frozenset(
    {
        FailReason.NO_CAPACITY,
        FailReason.QUOTA_REACHED,
        FailReason.LAUNCH_ANSWER_LOST,
        FailReason.NOT_TAKEN,
        FailReason.NEVER_BOOTED,
        FailReason.PROVIDER_REPORTED_FAILURE,
        FailReason.UNREACHABLE,
        FailReason.VANISHED,
    }
)
"""Failures that say little about the next try. The others rule the offer out for this lease."""


class RejectCode(StrEnum):
    SHAPE_DIFFERS = "shape_differs"
    REGION_EXCLUDED = "region_excluded"
    PROVIDER_EXCLUDED = "provider_excluded"
    SOLD_OUT = "sold_out"
    STALE = "stale"
    COSTS_MORE_THAN_SOLD = "costs_more_than_sold"
    ACCOUNT_UNHEALTHY = "account_unhealthy"
    FAILED_BEFORE = "failed_before"
    RESTING = "resting"
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


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt of this lease that failed on this offer."""

    reason: FailReason
    at: datetime


@dataclass(frozen=True, slots=True)
class Disproven:
    """The machines of one offer that were ended for their GPU proof within PROOF_RECORD_WINDOW."""

    proofs: tuple[UUID, ...]
    """The proof that ended each."""


@dataclass(frozen=True, slots=True)
class Rejection:
    offer: Offer
    code: RejectCode
    why: str
    proofs: tuple[UUID, ...] = ()
    """The proofs that speak against it, where that is the reason."""


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
    now: datetime,
) -> Ranking:
    """Order the offers that can serve `request`; say of every other one why not.

    `failures` maps offer keys to this lease's latest failure there, `disproven` to everybody's failed
    GPU proofs; `unhealthy_accounts` maps account names to the sentence that says why nothing is bought
    there now.
    """
    candidates: list[Offer] = []
    rejected: list[Rejection] = []
    for offer in offers:
        refusal = (
            _does_not_fit(request, shape, price_nano_per_hour, offer)
            or _cannot_be_bought(offer, unhealthy_accounts, now)
            or _failed_here(offer, failures.get(offer.key), now)
            or _disproven(offer, disproven.get(offer.key))
        )
        if refusal is None:
            candidates.append(offer)
        else:
            rejected.append(refusal)
    candidates.sort(key=_order)
    rejected.sort(key=_rejection_order)
    return Ranking(tuple(candidates), tuple(rejected))


def _order(offer: Offer) -> tuple[int, int, str]:
    return (offer.cost_nano_per_hour, _CONFIDENCE_ORDER.get(offer.confidence, 3), offer.key)


def _rejection_order(rejection: Rejection) -> tuple[str, str]:
    return (rejection.code, rejection.offer.key)


def _does_not_fit(
    request: CapacityRequest, shape: Shape, price_nano_per_hour: Nano, offer: Offer
) -> Rejection | None:
    if not offer.shape.holds(shape):
        why = f"{offer.native_type} is {_spoken(offer.shape)}; the SKU promises {_spoken(shape)}."
        return Rejection(offer, RejectCode.SHAPE_DIFFERS, why)
    if not request.allows_region(offer.region):
        why = f"The request is for {' or '.join(request.regions)}."
        return Rejection(offer, RejectCode.REGION_EXCLUDED, why)
    if not request.allows_provider(offer.provider):
        why = f"The request is for {' or '.join(request.providers)}."
        return Rejection(offer, RejectCode.PROVIDER_EXCLUDED, why)
    if offer.cost_nano_per_hour > price_nano_per_hour:
        why = f"It costs us {usd(offer.cost_nano_per_hour)} USD per hour and is sold at {usd(price_nano_per_hour)}."
        return Rejection(offer, RejectCode.COSTS_MORE_THAN_SOLD, why)
    return None


def _cannot_be_bought(offer: Offer, unhealthy_accounts: Mapping[str, str], now: datetime) -> Rejection | None:
    if offer.account in unhealthy_accounts:
        return Rejection(offer, RejectCode.ACCOUNT_UNHEALTHY, unhealthy_accounts[offer.account])
    age = now - offer.observed_at
    if age > OFFER_STALE_AFTER:
        seconds, limit = int(age.total_seconds()), int(OFFER_STALE_AFTER.total_seconds())
        why = f"It was last seen {seconds} s ago; {limit} s is the limit."
        return Rejection(offer, RejectCode.STALE, why)
    if not offer.available:
        return Rejection(offer, RejectCode.SOLD_OUT, f"{offer.provider} lists no stock in {offer.region}.")
    return None


def _failed_here(offer: Offer, failure: Failure | None, now: datetime) -> Rejection | None:
    if failure is None:
        return None
    if failure.reason not in _PASSING:
        return Rejection(offer, RejectCode.FAILED_BEFORE, f"This lease failed there: {failure.reason}.")
    if now - failure.at < RETRY_AFTER:
        seconds = int((RETRY_AFTER - (now - failure.at)).total_seconds())
        return Rejection(
            offer, RejectCode.RESTING, f"This lease failed there ({failure.reason}); again in {seconds} s."
        )
    return None


def _disproven(offer: Offer, record: Disproven | None) -> Rejection | None:
    if record is None or len(record.proofs) < PROOF_RECORD_MAX:
        return None
    hours = int(PROOF_RECORD_WINDOW.total_seconds() // 3600)
    why = f"{len(record.proofs)} of its machines failed their GPU proof within {hours} h."
    return Rejection(offer, RejectCode.PROOF_RECORD, why, record.proofs)


def _spoken(shape: Shape) -> str:
    return (
        f"{shape.gpu_count} x {shape.gpu_model}, {shape.vcpus} vCPUs, {shape.memory_gib} GiB memory,"
        f" {shape.disk_gib} GiB disk"
    )
