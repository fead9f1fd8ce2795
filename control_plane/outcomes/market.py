"""What we sell and what providers offer, as far as one request is concerned."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from control_plane.db import accounts, catalogue, price_agreements
from control_plane.db.connection import Connection
from control_plane.db.offer_cache import OfferCache
from control_plane.domain.ids import OrganizationId
from control_plane.domain.lot import Lot, lots_of
from control_plane.domain.offered import is_offered, not_offered, unknown_constraint
from control_plane.domain.price import Price, bought_as
from control_plane.domain.price_agreement import priced
from control_plane.domain.quote import KeptQuote
from control_plane.domain.refusal import Refused
from control_plane.domain.request import CapacityRequest


@dataclass(frozen=True, slots=True)
class Market:
    """What we sell and what providers offer, as far as a request is concerned."""

    price: Price | None
    lots: Sequence[Lot] = ()
    """The offers with as many GPUs of the same model."""
    unserved: Refused | None = None
    """Why no offer can ever serve it."""
    sold: tuple[str, ...] = ()
    """The SKUs that are sold, when the request's is not. When that is not sold as spot, itself."""


async def market_of(
    connection: Connection,
    organization_id: OrganizationId,
    request: CapacityRequest,
    now: datetime,
    *,
    cache: OfferCache | None = None,
    quote: KeptQuote | None = None,
) -> Market:
    """What a request may be served with, at the price of a quote or at today's of the organization.

    With a `cache`, offers may come from it: for quotes, which decide nothing.
    """
    prices = await catalogue.prices(connection, now=now, sku=request.sku)
    if not prices:
        book = await catalogue.prices(connection, now=now)
        return Market(None, sold=tuple(other.sku.name for other in book))
    if quote is None:
        agreements = await price_agreements.in_force(connection, organization_id, now=now, sku=request.sku)
        price = priced(prices[0], request.purchase, request.sla, request.regions, agreements)
    else:
        price = quote.price(prices[0])
    if price is None:
        return Market(None, sold=(request.sku,))
    shape = price.sku.shape
    if cache is not None:
        lots: Sequence[Lot] = await cache.lots(connection, shape.gpu_model, shape.gpu_count)
    else:
        lots = lots_of(await catalogue.offers_of_shape(connection, shape.gpu_model, shape.gpu_count))
    return Market(price, lots, await _unserved(connection, request, price, lots, now))


async def _unserved(
    connection: Connection, request: CapacityRequest, price: Price, lots: Sequence[Lot], now: datetime
) -> Refused | None:
    """The refusal of a request that no offer can ever serve."""
    allowed = (
        offer
        for lot in lots
        if request.allows_region(lot.region)
        and request.allows_provider(lot.provider)
        and request.allows_network(lot.network_gbps)
        for offer in lot.offers
    )
    offered = is_offered(price, allowed, now)
    if offered and not (request.providers or request.regions):
        return None
    known = await accounts.every(connection)
    refused = unknown_constraint(
        request, {account.provider for account in known}, {lot.region for lot in lots}
    )
    if refused is not None:
        return refused
    if offered or not known or any(account.offers_at is None for account in known):
        return None  # An account that was never listed may offer anything.
    listed = await catalogue.prices(connection, now=now)
    book = bought_as(request.purchase, [each.within(None, request.sla) for each in listed])
    return not_offered(request, price, book, await catalogue.offers(connection), now)
