"""A customer's invoices."""

from datetime import datetime

from litestar import Controller, Response, get
from litestar.params import FromPath

from control_plane.api import paging
from control_plane.api.documents import PROBLEMS
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.invoice_page import invoice_page
from control_plane.api.views.invoices import after_invoice, invoice_view, summary_view
from control_plane.api.views.printed_page import HEADERS
from control_plane.domain.ids import Prefix
from control_plane.domain.period import month_text
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import invoices
from control_plane.services.invoices import FullInvoice
from control_plane.wire.invoices import InvoicePage, InvoiceView


class InvoiceController(Controller):
    path = "/invoices"
    tags = ("invoices",)

    @get(
        "/",
        operation_id="listInvoices",
        permission=Permission.INVOICES_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> InvoicePage:
        """Your organization's invoices, newest first."""
        return await page_of_invoices(request, limit, cursor, of_all=False)

    @get(
        "/{invoice_id:str}",
        operation_id="getInvoice",
        permission=Permission.INVOICES_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, invoice_id: FromPath[str]) -> InvoiceView:
        """An invoice with its lines."""
        return await one_invoice(request, invoice_id, of_all=False)

    @get(
        "/{invoice_id:str}/page",
        operation_id="getInvoicePage",
        permission=Permission.INVOICES_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
        media_type="text/html",
    )
    async def show_page(self, request: ApiRequest, invoice_id: FromPath[str]) -> Response[bytes]:
        """An invoice as a page of HTML to print or to keep."""
        return await page_of_invoice(request, invoice_id, of_all=False)


async def page_of_invoices(
    request: ApiRequest, limit: int, cursor: str | None, *, of_all: bool, period: datetime | None = None
) -> InvoicePage:
    """A page of the caller's invoices, or of those of all customers, newest first. Raises ApiError."""
    listed = "financeinvoices" if of_all else "invoices"
    found = await invoices.page(
        request.world,
        request.principal.organization_id,
        of_all=of_all,
        period=period,
        before=paging.moment(listed, cursor),
        limit=limit + 1,
    )
    page, following = paging.cut(found, limit, lambda one: after_invoice(listed, one.invoice))
    return InvoicePage(tuple(summary_view(one.invoice, one.credited) for one in page), following)


async def one_invoice(request: ApiRequest, invoice_id: str, *, of_all: bool) -> InvoiceView:
    """An invoice of the caller, or of any customer, with its lines. Raises ApiError."""
    return invoice_view(await _found(request, invoice_id, of_all=of_all))


async def page_of_invoice(request: ApiRequest, invoice_id: str, *, of_all: bool) -> Response[bytes]:
    """The same as a page of HTML. Raises ApiError."""
    return html_of(await _found(request, invoice_id, of_all=of_all))


def html_of(found: FullInvoice) -> Response[bytes]:
    name = found.invoice.number or f"draft-{month_text(found.invoice.period)}"
    headers = {**HEADERS, "Content-Disposition": f'inline; filename="{name}.html"'}
    return Response(invoice_page(found), media_type="text/html", headers=headers)


async def _found(request: ApiRequest, invoice_id: str, *, of_all: bool) -> FullInvoice:
    found = await invoices.get(
        request.world, request.principal.organization_id, read_id(Prefix.INVOICE, invoice_id), of_all=of_all
    )
    if isinstance(found, Refused):
        raise refusal(found)
    return found
