"""What a lease can be placed on: the offers of providers, and why one of them may be rejected. `ranking.py` decides.

`serves` decides which SKUs an offer can be sold as, for placement and for the catalogue alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.cpu import SOLD, Architecture
from control_plane.domain.effective_price import History, Terms, effective_nano_per_hour
from control_plane.domain.failure import FailReason
from control_plane.domain.firewall import ProviderFirewall
from control_plane.domain.money import Nano
from control_plane.domain.power_action import PowerAction
from control_plane.domain.price import ListPrice, bought_as
from control_plane.domain.purchase import PurchaseKind, capacity_for, kind_of
from control_plane.domain.sku import Shape
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
"""An offer is rejected when this many of its machines were terminated for their GPU proof within the window; where it
has a supplier, when as many of the supplier's were."""
OFFERED_WITHIN = timedelta(days=7)
"""A SKU counts as offered when an offer that can serve it was listed at most this long ago, sold out or not. An offer
that was not listed for longer is deleted."""


class RejectCode(StrEnum):
    SHAPE_DIFFERS = "shape_differs"
    ARCHITECTURE_NOT_SOLD = "architecture_not_sold"
    """Its CPU is one on which we are not known to run."""
    SPOT = "spot"
    """The provider may take its machine back, and the lease is on demand; or we order no spot there."""
    ON_DEMAND = "on_demand"
    """The lease is spot, and the offer is on demand."""
    REGION_EXCLUDED = "region_excluded"
    PROVIDER_EXCLUDED = "provider_excluded"
    NETWORK_TOO_SLOW = "network_too_slow"
    """Its network is slower than the request demands, or its provider does not say how fast it is."""
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
    YIELDED = "yielded"
    """An interruptible lease yielded its machine there to a lease in need, which gets the next one."""
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
    orderable: bool = True
    """Whether it can be ordered through us: we order no spot capacity from some who list it."""
    eviction_notice_seconds: int | None = None
    """How long before that it says so; None where it does not, and for offers on demand."""
    price_source: str = "listing"
    network_gbps: int | None = None
    """Gigabits per second between machines, with the network cards that it is ordered with; None where the listing does
    not say."""
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
    effective_nano_per_hour: Nano = field(init=False, compare=False)
    """What an hour of use costs us, by which it is ranked. Stored, because thousands are compared for one quote."""

    def __post_init__(self) -> None:
        effective = effective_nano_per_hour(self.cost_nano_per_hour, self.terms, self.history)
        object.__setattr__(self, "effective_nano_per_hour", effective)

    @property
    def purchase(self) -> PurchaseKind:
        return kind_of(spot=self.spot)


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt of this lease that failed on this offer."""

    reason: FailReason
    at: datetime
    times: int = 1
    """How many attempts of this lease have failed on the offer by now."""


@dataclass(frozen=True, slots=True)
class Disproven:
    """The machines of one offer, or of one supplier, that were terminated for their GPU proof within
    PROOF_RECORD_WINDOW.
    """

    proofs: tuple[UUID, ...]
    """For each machine, the failed proof that was the reason."""


@dataclass(frozen=True, slots=True)
class Rejection:
    offer: Offer
    code: RejectCode
    why: str
    proofs: tuple[UUID, ...] = ()
    """The failed proofs, where they are the reason."""
    more: int = 0
    """How many more offers of its account were rejected for the same reason, and are not named. Counted at the last
    one that is."""


def serves(offer: Offer, price: ListPrice) -> bool:
    """Whether an offer can be sold as this SKU at this price."""
    return (
        offer.architecture in SOLD
        and offer.orderable
        and offer.purchase is capacity_for(price.purchase)
        and offer.shape.holds(price.sku.shape)
        and pays(offer, price.nano_per_hour)
    )


def pays(offer: Offer, price_nano_per_hour: Nano) -> bool:
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
    served = [price for price in bought_as(offer.purchase, book) if serves(offer, price)]
    highest = max(served, key=lambda price: price.nano_per_hour, default=None)
    if highest is None:
        return SoldAs((), None, None)
    names = tuple(price.sku.name for price in served)
    return SoldAs(names, highest.nano_per_hour, stopped_nano_per_hour(offer, highest))
