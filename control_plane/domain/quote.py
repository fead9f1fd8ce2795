"""Quotes that are kept: the price of a lease that is created for one, whatever the price book says by then.

A quote is kept when its customer asks for that (docs/decisions/0063). What a lease is created for is what was quoted:
what the request leaves out is the quote's, and what it says must be the same. Placement is free among the offers that
can serve it, and admission is decided anew, because the balance and the envelopes are those of today.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from control_plane.domain.ids import (
    EnvironmentId,
    OrganizationId,
    Prefix,
    PriceAgreementId,
    ProjectId,
    QuoteId,
    on_wire,
)
from control_plane.domain.money import Nano, usd
from control_plane.domain.price import Price
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.scope import Scope, ScopeKind
from control_plane.domain.sla import SlaTier

LASTS = timedelta(minutes=15)
"""How long after it was made a lease may be created for a quote."""


@dataclass(frozen=True, slots=True)
class KeptQuote:
    """A price, and what it was quoted for. It never changes."""

    id: QuoteId
    organization_id: OrganizationId
    project_id: ProjectId
    environment_id: EnvironmentId
    sku: str
    regions: tuple[str, ...]
    providers: tuple[str, ...]
    price_nano_per_hour_max: Nano | None
    network_gbps_min: int | None
    purchase: PurchaseKind
    sla: SlaTier
    nano_per_unit_hour: Nano
    """Of the price book, without the factor of a burst: that is of the envelope, which is asked anew."""
    stopped_nano_per_unit_hour: Nano
    list_nano_per_unit_hour: Nano
    """What the price book said, without an agreement."""
    price_book: int
    """The version of the price book."""
    price_agreement_id: PriceAgreementId | None
    """The agreement with the customer that the price is from; None: the price book."""
    committed_days: int | None
    """The term that was quoted; None unless it is bought so."""
    quoted_at: datetime
    expires_at: datetime

    def price(self, listed: Price) -> Price:
        """The quoted price of the SKU. `listed` is today's price of it."""
        return replace(
            listed,
            nano_per_unit_hour=self.nano_per_unit_hour,
            stopped_nano_per_unit_hour=self.stopped_nano_per_unit_hour,
            book=self.price_book,
            purchase=self.purchase,
            committed_days=self.committed_days,
            listed_nano_per_unit_hour=self.list_nano_per_unit_hour,
            agreement_id=self.price_agreement_id,
        )

    @property
    def scope(self) -> Scope:
        """The environment that it was made for, as a scope of roles."""
        return Scope(ScopeKind.ENVIRONMENT, self.project_id, self.environment_id)

    @property
    def on_wire(self) -> str:
        return on_wire(Prefix.QUOTE, self.id)


def asked_for(quote: KeptQuote, request: CapacityRequest, now: datetime) -> CapacityRequest | Refused:
    """What a lease for this quote asks for, or why it cannot be had."""
    if now >= quote.expires_at:
        why = f"The quote {quote.on_wire} expired at {quote.expires_at:%Y-%m-%d %H:%M:%S} UTC; ask for another one."
        return Refused(RefusalCode.QUOTE_EXPIRED, why)
    for field, said, quoted in (
        ("sku", {request.sku}, {quote.sku}),
        ("purchase", {request.purchase}, {quote.purchase}),
        ("sla", {request.sla}, {quote.sla}),
        ("regions", set(request.regions), set(quote.regions)),
        ("providers", set(request.providers), set(quote.providers)),
        (
            "price_usd_per_hour_max",
            _in_usd(request.price_nano_per_hour_max),
            _in_usd(quote.price_nano_per_hour_max),
        ),
        ("network_gbps_min", _in_words(request.network_gbps_min), _in_words(quote.network_gbps_min)),
        ("committed_days", _in_words(request.committed_days), _in_words(quote.committed_days)),
    ):
        if said and said != quoted:
            return differs(quote, field, ", ".join(sorted(quoted)) or "not limited")
    return replace(
        request,
        regions=quote.regions,
        providers=quote.providers,
        price_nano_per_hour_max=quote.price_nano_per_hour_max,
        network_gbps_min=quote.network_gbps_min,
        committed_days=quote.committed_days,
    )


def _in_usd(ceiling: Nano | None) -> set[str]:
    return set() if ceiling is None else {usd(ceiling)}


def _in_words(number: int | None) -> set[str]:
    return set() if number is None else {str(number)}


def differs(quote: KeptQuote, field: str, quoted: str) -> Refused:
    """The refusal of a request that asks for something else than was quoted."""
    why = f"In the quote {quote.on_wire}, `{field}` is {quoted}; ask for the same, or for another quote."
    return Refused(RefusalCode.QUOTE_DIFFERS, why)


def without_offers(quote: KeptQuote) -> Refused:
    """The refusal of a request for which no offer is left."""
    why = f"No offer can serve the quote {quote.on_wire} now; without it, a lease waits for one at today's price."
    return Refused(RefusalCode.QUOTE_WITHOUT_OFFERS, why)
