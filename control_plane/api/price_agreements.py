"""Prices that finance agrees on with customers."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import made, refusable
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.price_agreements import price_agreement_view
from control_plane.domain.ids import Prefix, PriceAgreementId
from control_plane.domain.money import parse_usd
from control_plane.domain.permission import Permission
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.domain.sla import SlaTier
from control_plane.services import price_agreements
from control_plane.services.idempotency import Connection
from control_plane.services.price_agreements import NewAgreement
from control_plane.wire.common import ORGANIZATION_ID_PATTERN
from control_plane.wire.price_agreements import (
    PriceAgreementEndRequest,
    PriceAgreementPage,
    PriceAgreementRequest,
    PriceAgreementView,
)

_PAGE = "price_agreements"
WithOrganization = Annotated[
    str | None,
    QueryParameter(pattern=ORGANIZATION_ID_PATTERN, description="Only those with this organization."),
]


class PriceAgreementController(Controller):
    path = "/finance/price-agreements"
    tags = ("finance",)

    @get(
        "/",
        operation_id="listPriceAgreements",
        permission=Permission.PRICE_AGREEMENTS_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        organization: WithOrganization = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> PriceAgreementPage:
        """The prices that were agreed on with customers, newest first, with those that ended."""
        found = await price_agreements.page(
            request.world,
            request.principal.organization_id,
            organization_id=None if organization is None else read_organization_id(organization),
            before=paging.moment(_PAGE, cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda each: paging.after_moment(_PAGE, each.agreed_at, each.id)
        )
        return PriceAgreementPage(tuple(map(price_agreement_view, page)), following)

    @post(
        "/",
        operation_id="createPriceAgreement",
        permission=Permission.PRICE_AGREEMENTS_MAKE,
        scope=ScopeKind.PLATFORM,
        responses=made(PriceAgreementView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[PriceAgreementRequest]) -> Response[bytes]:
        """Agree on a price with a customer. It applies to leases that are created from then on, and is never edited."""
        principal, stopped = request.principal, data.stopped_usd_per_unit_hour
        new = NewAgreement(
            organization_id=read_organization_id(data.organization_id),
            sku=data.sku,
            region=data.region,
            sla=None if data.sla is None else SlaTier(data.sla),
            purchase=PurchaseKind(data.purchase),
            nano_per_unit_hour=parse_usd(data.usd_per_unit_hour),
            stopped_nano_per_unit_hour=None if stopped is None else parse_usd(stopped),
            valid_from=data.valid_from,
            valid_until=data.valid_until,
            by=principal.subject.on_wire,
            reason=data.reason,
        )

        async def effect(connection: Connection) -> Made | Refused:
            agreed = await price_agreements.make(
                connection, request.world, new, platform=principal.organization_id
            )
            return agreed if isinstance(agreed, Refused) else Made(price_agreement_view(agreed))

        return await idempotency.once(request, effect, status=201)

    @post(
        "/{agreement_id:str}/end",
        operation_id="endPriceAgreement",
        permission=Permission.PRICE_AGREEMENTS_MAKE,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(PriceAgreementView, 200),
    )
    async def end(
        self, request: ApiRequest, agreement_id: FromPath[str], data: JSONBody[PriceAgreementEndRequest]
    ) -> Response[bytes]:
        """Let an agreement be over, now or later. Leases that have its price keep it."""
        target = PriceAgreementId(read_id(Prefix.PRICE_AGREEMENT, agreement_id))

        async def effect(connection: Connection) -> Made | Refused:
            over = await price_agreements.end(
                connection, request.world, target, at=data.at, by=request.principal.subject.on_wire
            )
            return over if isinstance(over, Refused) else Made(price_agreement_view(over))

        return await idempotency.once(request, effect, status=200)
