"""What is sold (SKUs), what providers offer, and what a lease would cost (quotes).

Everybody sees where capacity is and our price for it; what we pay needs the permission `costs.read`.
"""

from dataclasses import dataclass
from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.filters import InRegion, OfProvider
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.catalogue import kept_quote_view, offer_view, quote_view, sku_view
from control_plane.api.views.sla_terms import sla_tier_view
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import Prefix, QuoteId
from control_plane.domain.money import parse_usd
from control_plane.domain.permission import Permission
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import Refused
from control_plane.domain.request import CapacityRequest
from control_plane.domain.scope import AT_ANY_SCOPE, ScopeKind
from control_plane.domain.sla import SlaTier
from control_plane.services import catalogue, quotes, sla_terms
from control_plane.services.catalogue import OfferFilter
from control_plane.services.idempotency import Connection
from control_plane.wire.catalogue import (
    NETWORK_GBPS_MAX,
    KeptQuoteView,
    OfferList,
    PlacementRequest,
    PriceRequest,
    QuoteRequest,
    QuoteView,
    SkuList,
)
from control_plane.wire.sla_terms import SlaTierList


def requested_by(data: PlacementRequest) -> CapacityRequest:
    """The body of a quote, a lease or a node pool as the domain's value. Nodes of pools are on demand."""
    ceiling = data.price_usd_per_hour_max
    return CapacityRequest(
        sku=data.sku,
        regions=data.regions,
        providers=data.providers,
        price_nano_per_hour_max=None if ceiling is None else parse_usd(ceiling),
        priority=data.priority,
        purchase=PurchaseKind(data.purchase) if isinstance(data, QuoteRequest) else PurchaseKind.ON_DEMAND,
        sla=SlaTier(data.sla),
        network_gbps_min=data.network_gbps_min,
        committed_days=data.committed_days if isinstance(data, QuoteRequest) else None,
    )


WithNetwork = Annotated[
    int | None,
    QueryParameter(
        ge=1,
        le=NETWORK_GBPS_MAX,
        description="Only with at least so many gigabits per second between machines, where the provider says so.",
    ),
]

WithTier = Annotated[SlaTier, QueryParameter(description="The tier that the prices are to be of.")]


@dataclass(frozen=True, slots=True)
class _AfterOffer:
    """The offer after which a page starts."""

    key: str


class CatalogueController(Controller):
    path = "/"
    tags = ("catalogue",)

    @get(
        "/skus",
        operation_id="listSkus",
        permission=Permission.SKUS_READ,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def skus(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> SkuList:
        """What is for sale, at the prices of your organization."""
        book = await catalogue.sold_to(request.world, request.principal.organization_id)
        page, following = paging.window(
            "skus", book, lambda sold: sold.listed.sku.name, limit=limit, cursor=cursor
        )
        return SkuList(tuple(sku_view(sold) for sold in page), following)

    @get(
        "/sla-tiers",
        operation_id="listSlaTiers",
        permission=Permission.SKUS_READ,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def sla_tiers(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> SlaTierList:
        """What each service level promises with leases that are created now, the least first."""
        offered = await sla_terms.in_force(request.world)
        page, following = paging.window(
            "sla_tiers", offered, lambda offer: offer.terms.tier.value, limit=limit, cursor=cursor
        )
        return SlaTierList(tuple(sla_tier_view(offer) for offer in page), following)

    @get(
        "/offers",
        operation_id="listOffers",
        permission=Permission.OFFERS_READ,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def offers(
        self,
        request: ApiRequest,
        *,
        gpu_model: FromQuery[GpuModel | None] = None,
        provider: OfProvider = None,
        region: InRegion = None,
        network_gbps_min: WithNetwork = None,
        sla: WithTier = SlaTier.BRONZE,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> OfferList:
        """The capacity that providers listed last, with its age, in the order of the keys."""
        world, costs = request.world, request.disclosure.costs
        after = paging.place("offers", cursor, _AfterOffer)
        found = await catalogue.offers(
            world,
            OfferFilter(gpu_model, provider, region, network_gbps_min),
            after=None if after is None else after.key,
            limit=limit + 1,
        )
        book, now = await catalogue.sold_to(world, request.principal.organization_id), world.now()
        page, following = paging.cut(
            found, limit, lambda offer: paging.after_place("offers", _AfterOffer(offer.key))
        )
        return OfferList(
            tuple(offer_view(offer, book, now, costs=costs, sla=sla) for offer in page), following
        )

    @post(
        "/quotes",
        operation_id="createQuote",
        permission=Permission.QUOTES_CREATE,
        scope=ScopeKind.ENVIRONMENT,
        status_code=200,
        responses=made(QuoteView, 200),
    )
    async def quote(self, request: ApiRequest, data: JSONBody[PriceRequest]) -> Response[bytes]:
        """Whether a lease would be admitted now, at what price, and where it would go. A refusal is a 200, too.

        With `keep`, a lease may be created at this price for some minutes, whatever the price book says then.
        """
        principal = request.principal

        async def effect(connection: Connection) -> Made | Refused:
            asked = await quotes.quote(
                request.world,
                principal.organization_id,
                requested_by(data),
                project=data.project,
                environment=data.environment,
                reach=request.reach,
            )
            if isinstance(asked, Refused):
                return asked
            if data.keep:
                asked = await quotes.keep(connection, request.world, asked)
            return Made(quote_view(asked, request.disclosure))

        return await idempotency.once(request, effect, status=200)

    @get(
        "/quotes/{quote_id:str}",
        operation_id="getQuote",
        permission=Permission.QUOTES_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def kept(self, request: ApiRequest, quote_id: FromPath[str]) -> KeptQuoteView:
        """A quote that was kept: its price, what it is for, and until when.

        A day after it expires it is deleted, unless a lease was created for it.
        """
        found = await quotes.show(
            request.world,
            request.principal.organization_id,
            QuoteId(read_id(Prefix.QUOTE, quote_id)),
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return kept_quote_view(found, request.world.now())
