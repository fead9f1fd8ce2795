"""Offers that a ranking can treat alike: the same account, place, machine and stock, at different prices.

A marketplace lists thousands of offers of one shape. What rules an offer out is nearly always the same for all offers
of a lot, so a ranking decides once for each lot (`ranking.py`). Lots are made once for each listing, and ranked often.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from control_plane.domain.cpu import Architecture
from control_plane.domain.money import Nano
from control_plane.domain.placement import STALE_AFTER, STALE_AFTER_UNLESS_KNOWN, Offer
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import Shape

Order = tuple[int, int, str]

_CONFIDENCE_ORDER = {"live": 0, "advisory": 1, "static": 2}


@dataclass(frozen=True, slots=True)
class Lot:
    offers: tuple[Offer, ...]
    """At least one, in no order."""
    account: str
    provider: str
    region: str
    shape: Shape
    architecture: Architecture
    purchase: PurchaseKind
    orderable: bool
    available: bool
    network_gbps: int | None
    stale_after: datetime
    """Later than that none of them is bought, unless it is listed again."""
    cost_nano_per_hour_max: Nano
    """What the most expensive one costs us."""
    best: Order
    """The order of the best one."""


def order(offer: Offer) -> Order:
    """Offers are ranked by this, the lowest first."""
    return (offer.effective_nano_per_hour, _CONFIDENCE_ORDER.get(offer.confidence, 3), offer.key)


def lots_of(offers: Iterable[Offer]) -> list[Lot]:
    """Every offer, in its lot."""
    lots: dict[tuple[object, ...], list[Offer]] = {}
    for offer in offers:
        alike = (
            *(offer.account, offer.provider, offer.region, offer.shape, offer.architecture, offer.spot),
            *(offer.orderable, offer.available, offer.network_gbps, offer.confidence, offer.observed_at),
        )
        lots.setdefault(alike, []).append(offer)
    return [lot_of(offers) for offers in lots.values()]


def lot_of(alike: Iterable[Offer]) -> Lot:
    """A lot of offers that differ only in their key, type and price."""
    offers = tuple(alike)
    first = offers[0]
    return Lot(
        offers=offers,
        account=first.account,
        provider=first.provider,
        region=first.region,
        shape=first.shape,
        architecture=first.architecture,
        purchase=first.purchase,
        orderable=first.orderable,
        available=first.available,
        network_gbps=first.network_gbps,
        stale_after=first.observed_at + STALE_AFTER.get(first.confidence, STALE_AFTER_UNLESS_KNOWN),
        cost_nano_per_hour_max=max(offer.cost_nano_per_hour for offer in offers),
        best=min(map(order, offers)),
    )
