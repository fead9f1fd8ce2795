"""Charges of any organization for finance: what one follows from, and those of a lease or of a line of an invoice."""

from litestar import Controller, get
from litestar.params import FromPath

from control_plane.api import paging
from control_plane.api.documents import PROBLEMS
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_id, read_lease_id, read_line
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.charges import explanation_view, lease_charge_view
from control_plane.domain.ids import Prefix
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import charges
from control_plane.wire.charges import ChargeExplanationView, LeaseChargePage

_KIND, _OF_LINE = "lease_charges", "invoiced_charges"


class ChargeController(Controller):
    path = "/finance"
    tags = ("finance",)

    @get(
        "/charges/{charge_id:str}",
        operation_id="getCharge",
        permission=Permission.RECONCILIATIONS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, charge_id: FromPath[str]) -> ChargeExplanationView:
        """A charge, the journal's events around it, its interval, its price, and its transaction."""
        found = await charges.explain(
            request.world, request.principal.organization_id, read_id(Prefix.CHARGE, charge_id)
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return explanation_view(found)

    @get(
        "/leases/{lease_id:str}/charges",
        operation_id="listLeaseCharges",
        permission=Permission.RECONCILIATIONS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def of_lease(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> LeaseChargePage:
        """The charges of a lease of any organization, oldest first."""
        found = await charges.of_lease(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            after=paging.number(_KIND, cursor) or 0,
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, lambda charge: paging.after_number(_KIND, charge.number))
        return LeaseChargePage(tuple(map(lease_charge_view, page)), following)

    @get(
        "/invoices/{invoice_id:str}/lines/{line:str}/charges",
        operation_id="listInvoicedCharges",
        permission=Permission.RECONCILIATIONS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def of_invoice_line(
        self,
        request: ApiRequest,
        invoice_id: FromPath[str],
        line: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> LeaseChargePage:
        """The charges that a line of an invoice adds up, oldest first. A line that is no usage has none.

        The exact amount of the line is the sum of theirs.
        """
        after = paging.moment(_OF_LINE, cursor)
        found = await charges.of_invoice_line(
            request.world,
            request.principal.organization_id,
            read_id(Prefix.INVOICE, invoice_id),
            read_line(line),
            after=after,
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found, limit, lambda charge: paging.after_moment(_OF_LINE, charge.started_at, charge.id)
        )
        return LeaseChargePage(tuple(map(lease_charge_view, page)), following)
