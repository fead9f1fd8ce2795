"""Suppliers' invoices and the three-way match, for finance."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.filters import OfProvider
from control_plane.api.idempotency import Made
from control_plane.api.margins import Month
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.supplier_invoices import match_view, supplier_invoice_view
from control_plane.domain.period import parse_month
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import supplier_invoices
from control_plane.services.idempotency import Connection
from control_plane.wire.margins import LINES_MAX
from control_plane.wire.supplier_invoices import (
    MatchView,
    SupplierInvoicePage,
    SupplierInvoiceRequest,
    SupplierInvoiceView,
)

_KIND = "supplier_invoices"


class SupplierInvoiceController(Controller):
    path = "/finance/supplier-invoices"
    tags = ("finance",)

    @get(
        "/",
        operation_id="listSupplierInvoices",
        permission=Permission.MARGINS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> SupplierInvoicePage:
        """What suppliers invoiced us, newest import first."""
        found = await supplier_invoices.page(
            request.world,
            request.principal.organization_id,
            before=paging.moment(_KIND, cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda one: paging.after_moment(_KIND, one.imported_at, one.id)
        )
        return SupplierInvoicePage(tuple(map(supplier_invoice_view, page)), following)

    @post(
        "/",
        operation_id="importSupplierInvoice",
        permission=Permission.SUPPLIER_INVOICES_IMPORT,
        scope=ScopeKind.PLATFORM,
        responses=made(SupplierInvoiceView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[SupplierInvoiceRequest]) -> Response[bytes]:
        """Import a supplier's whole invoice of a month. It takes the place of an earlier import, which is kept.

        The same file again changes nothing, and a file of which any line is wrong is refused as a whole.
        """
        month = parse_month(data.period)

        async def effect(connection: Connection) -> Made | Refused:
            found = await supplier_invoices.import_csv(
                connection,
                request.world,
                data.provider,
                month,
                data.csv,
                by=request.principal.subject.on_wire,
            )
            return found if isinstance(found, Refused) else Made(supplier_invoice_view(found))

        return await idempotency.once(request, effect, status=201)


class MatchController(Controller):
    path = "/finance/match"
    tags = ("finance",)

    @get(
        "/",
        operation_id="getMatch",
        permission=Permission.MARGINS_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(409, 422),
    )
    async def show(
        self,
        request: ApiRequest,
        *,
        month: Month = None,
        provider: OfProvider = None,
        lines: Annotated[
            int, QueryParameter(ge=1, le=LINES_MAX, description="How many machines are named at most.")
        ] = 100,
    ) -> MatchView:
        """Compare our meter, the suppliers' records and the customers' bills of a month, machine by machine."""
        found = await supplier_invoices.match(
            request.world,
            request.principal.organization_id,
            None if month is None else parse_month(month),
            provider,
            lines=lines,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return match_view(found)
