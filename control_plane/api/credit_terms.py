"""Credit terms of customers, for finance."""

from litestar import Controller, get, put
from litestar.params import FromPath, JSONBody

from control_plane.api.documents import PROBLEMS, refusable
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_organization_id
from control_plane.api.requests import ApiRequest
from control_plane.api.views.credit_terms import credit_terms_view
from control_plane.domain.money import parse_usd
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import credit_terms
from control_plane.services.credit_terms import CreditTerms
from control_plane.wire.credit_terms import CreditTermsRequest, CreditTermsView


class CreditTermsController(Controller):
    path = "/finance/credit-terms/{organization_id:str}"
    tags = ("finance",)

    @get(
        "/",
        operation_id="getCreditTerms",
        permission=Permission.LEDGER_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, organization_id: FromPath[str]) -> CreditTermsView:
        """How far a customer may use capacity before it pays."""
        target = read_organization_id(organization_id)
        found = await credit_terms.get(request.world, target, platform=request.principal.organization_id)
        if isinstance(found, Refused):
            raise refusal(found)
        return credit_terms_view(target, found)

    @put(
        "/",
        operation_id="putCreditTerms",
        permission=Permission.CREDIT_TERMS_SET,
        scope=ScopeKind.PLATFORM,
        responses=refusable(408, 413, 415, 422),
    )
    async def set(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[CreditTermsRequest]
    ) -> CreditTermsView:
        """Decide how far a customer may use capacity before it pays, and how long it has to pay an invoice.

        The limit counts at once, and the days from the next invoice on.
        """
        target, principal = read_organization_id(organization_id), request.principal
        terms = CreditTerms(
            limit_nano=parse_usd(data.credit_limit_usd),
            payment_days=data.payment_days,
            reason=data.reason,
            changed_at=request.world.now(),
            changed_by=principal.subject.on_wire,
        )
        found = await credit_terms.put(request.world, target, terms, platform=principal.organization_id)
        if found is not None:
            raise refusal(found)
        return credit_terms_view(target, terms)
