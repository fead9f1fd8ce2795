"""Prices by region and by customer: which line of the price book, or which agreement, a request is sold at.

A price is for a SKU, a kind of purchase, and a region or anywhere. An agreement is such a price for one organization
and a time; it is never edited, only ended. What a lease costs is settled when it is admitted, before anybody knows
where its machine will be, so a region's price is that of a request that is limited to it (docs/decisions/0084).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from control_plane.domain.admission import Price
from control_plane.domain.ids import OrganizationId, Prefix, PriceAgreementId, on_wire
from control_plane.domain.money import NANO_MAX, Nano
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sku import covers


@dataclass(frozen=True, slots=True)
class PriceAgreement:
    """A price that finance agreed on with a customer."""

    id: PriceAgreementId
    organization_id: OrganizationId
    sku: str
    region: str | None
    """A jurisdiction or a region; None: anywhere."""
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
        same = ("organization_id", "sku", "region", "purchase")
        if any(getattr(self, field) != getattr(other, field) for field in same):
            return False
        return (other.valid_until is None or self.valid_from < other.valid_until) and (
            self.valid_until is None or other.valid_from < self.valid_until
        )


def priced(
    listed: Price, purchase: PurchaseKind, regions: Iterable[str], agreements: Iterable[PriceAgreement]
) -> Price | None:
    """What a request is sold at; None when the SKU is not sold as that kind of purchase.

    `agreements` are those in force of the customer for the SKU. In each region that the request names, or anywhere when
    it names none, the narrowest agreement applies, or else the narrowest line of the price book. The highest of these
    prices is that of the request, because its machine may come from any of the regions.
    """
    known = [agreement for agreement in agreements if agreement.purchase is purchase]
    found: list[Price] = []
    for region in tuple(regions) or (None,):
        book = listed.within(region).bought(purchase)
        if book is None:
            return None
        found.append(_agreed(book, [each for each in known if covers(each.region, region)]))
    return max(found, key=lambda price: price.nano_per_unit_hour)


def _agreed(book: Price, agreements: Iterable[PriceAgreement]) -> Price:
    narrowest = max(agreements, key=lambda agreement: len(agreement.region or ""), default=None)
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
    if listed.within(agreement.region).bought(agreement.purchase) is None:
        why = (
            f"{agreement.sku} has no spot price; a price for spot is agreed on where the price book has one."
        )
        return Refused(RefusalCode.SKU_NOT_SOLD_AS_SPOT, why)
    if agreement.nano_per_unit_hour > NANO_MAX // max(1, listed.sku.shape.units):
        return Refused(
            RefusalCode.PRICE_INVALID, "A machine would cost more an hour than the ledger can hold."
        )
    stopped = agreement.stopped_nano_per_unit_hour
    if stopped is not None and (
        stopped > agreement.nano_per_unit_hour or agreement.purchase is not PurchaseKind.ON_DEMAND
    ):
        why = (
            "A stopped machine must not cost more than one that is on, and only what is on demand has a price of its"
            " own for that."
        )
        return Refused(RefusalCode.PRICE_INVALID, why)
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
