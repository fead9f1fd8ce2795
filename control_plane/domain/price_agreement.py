"""Prices by region, tier and customer: which line of the price book, or which agreement, a request is sold at.

A price is for a SKU, a kind of purchase, a region or anywhere, and an SLA tier or all of them. An agreement is such a
price for one organization and a time; it is never edited, only ended. What a lease costs is settled when it is
admitted, before anybody knows where its machine will be, so a region's price is that of a request that is limited to it
(docs/decisions/0084). A price that names no tier is for all tiers; one of the tier is used before it, in the book and
among agreements (docs/decisions/0108).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from control_plane.domain.ids import OrganizationId, Prefix, PriceAgreementId, on_wire
from control_plane.domain.money import NANO_MAX, Nano
from control_plane.domain.price import Price
from control_plane.domain.purchase import TAKEN_BACK, PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import covers
from control_plane.domain.sla import SlaTier


@dataclass(frozen=True, slots=True)
class PriceAgreement:
    """A price that finance agreed on with a customer."""

    id: PriceAgreementId
    organization_id: OrganizationId
    sku: str
    region: str | None
    """A jurisdiction or a region; None: anywhere."""
    sla: SlaTier | None
    """None: with every tier."""
    purchase: PurchaseKind
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano | None
    """The price while the machine is stopped; None: that of the price book, or this one where it is lower."""
    valid_from: datetime
    valid_until: datetime | None
    """Exclusive; None: until it is ended. Equal to `valid_from` when it was ended before it began."""
    agreed_at: datetime
    agreed_by: str
    """The id of the subject."""
    reason: str

    def is_in_force(self, now: datetime) -> bool:
        return self.valid_from <= now and (self.valid_until is None or now < self.valid_until)

    def overlaps(self, other: "PriceAgreement") -> bool:
        """Whether both would be the price of the same thing at some moment."""
        same = ("organization_id", "sku", "region", "sla", "purchase")
        if any(getattr(self, field) != getattr(other, field) for field in same):
            return False
        return (other.valid_until is None or self.valid_from < other.valid_until) and (
            self.valid_until is None or other.valid_from < self.valid_until
        )


def priced(
    listed: Price,
    purchase: PurchaseKind,
    sla: SlaTier,
    regions: Iterable[str],
    agreements: Iterable[PriceAgreement],
) -> Price | None:
    """What a request is sold at; None when the SKU is not sold as that kind of purchase.

    `agreements` are those in force of the customer for the SKU. In each region that the request names, or anywhere when
    it names none, an agreement applies, or else a line of the price book: one of the tier before one for all tiers, and
    of several the narrowest. The highest of these prices is that of the request, because its machine may come from any
    of the regions.
    """
    known = [each for each in agreements if each.purchase is purchase and each.sla in (None, sla)]
    found: list[Price] = []
    for region in tuple(regions) or (None,):
        book = listed.within(region, sla).bought(purchase)
        if book is None:
            return None
        found.append(_agreed(book, [each for each in known if covers(each.region, region)]))
    return max(found, key=lambda price: price.nano_per_unit_hour)


def _agreed(book: Price, agreements: Iterable[PriceAgreement]) -> Price:
    narrowest = max(agreements, key=lambda each: (each.sla is not None, len(each.region or "")), default=None)
    if narrowest is None:
        return book
    stopped = narrowest.stopped_nano_per_unit_hour
    return replace(
        book,
        nano_per_unit_hour=narrowest.nano_per_unit_hour,
        stopped_nano_per_unit_hour=book.stopped_nano_per_unit_hour if stopped is None else stopped,
        listed_nano_per_unit_hour=book.nano_per_unit_hour,
        agreement_id=narrowest.id,
    )


def proposed(
    agreement: PriceAgreement, others: Iterable[PriceAgreement], book: Iterable[Price], now: datetime
) -> Refused | None:
    """Why an agreement cannot be made. `others` are those of the organization."""
    listed = next((price for price in book if price.sku.name == agreement.sku), None)
    if listed is None:
        return Refused(RefusalCode.SKU_UNKNOWN, f"There is no SKU {agreement.sku!r} (GET /v1/skus).")
    if listed.within(agreement.region, agreement.sla or SlaTier.BRONZE).bought(agreement.purchase) is None:
        kind = agreement.purchase
        why = f"{agreement.sku} has no {kind} price; one is agreed on where the price book has one."
        return Refused(RefusalCode.PURCHASE_NOT_OFFERED, why)
    invalid = _no_price(agreement, listed)
    if invalid is not None:
        return Refused(RefusalCode.PRICE_INVALID, invalid)
    if agreement.valid_from < now:
        why = f"It is {now:%Y-%m-%d %H:%M:%S} UTC; what was used before is charged already."
        return Refused(RefusalCode.PRICE_IN_PAST, why)
    if agreement.valid_until is not None and agreement.valid_until <= agreement.valid_from:
        return Refused(RefusalCode.PRICE_INVALID, "An agreement ends after it begins.")
    for other in others:
        if agreement.overlaps(other):
            ends = (
                "without an end"
                if other.valid_until is None
                else f"until {other.valid_until:%Y-%m-%d %H:%M} UTC"
            )
            why = (
                f"{on_wire(Prefix.PRICE_AGREEMENT, other.id)} is the price of the same from"
                f" {other.valid_from:%Y-%m-%d %H:%M} UTC {ends}; end it first, or choose another time."
            )
            return Refused(RefusalCode.PRICE_OVERLAPS, why)
    return None


def _no_price(agreement: PriceAgreement, listed: Price) -> str | None:
    """Why nothing can be sold at an agreement's price."""
    sold = replace(listed, purchase=agreement.purchase)
    if agreement.nano_per_unit_hour > NANO_MAX // (
        max(1, listed.sku.shape.units) * -(-sold.hold_seconds // 3_600)
    ):
        return "A machine would cost more than the ledger can hold."
    stopped = agreement.stopped_nano_per_unit_hour
    on_demand = agreement.purchase is PurchaseKind.ON_DEMAND
    if stopped is not None and (stopped > agreement.nano_per_unit_hour or not on_demand):
        return (
            "A stopped machine must not cost more than one that is on, and only what is on demand has a price of its"
            " own for that."
        )
    if agreement.sla is not None and agreement.purchase in TAKEN_BACK:
        return f"Nothing is promised with what is bought as {agreement.purchase}; leave the tier out."
    return None


def ended(agreement: PriceAgreement, at: datetime | None, now: datetime) -> datetime | Refused:
    """When an agreement ends that is to end `at` a moment, or now. It is not in force from then on."""
    until = now if at is None else at
    if until < now:
        return Refused(RefusalCode.PRICE_IN_PAST, f"It is {now:%Y-%m-%d %H:%M:%S} UTC; choose a later time.")
    until = max(until, agreement.valid_from)
    if agreement.valid_until is not None and agreement.valid_until <= until:
        why = f"It ends at {agreement.valid_until:%Y-%m-%d %H:%M:%S} UTC already."
        return Refused(RefusalCode.PRICE_ENDED, why)
    return until
