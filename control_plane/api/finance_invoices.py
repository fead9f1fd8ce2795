"""Invoices of all customers and their billing details, for finance."""

from typing import Annotated

from litestar import Controller, Response, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_month, read_organization_id
from control_plane.api.invoices import html_of, one_invoice, page_of_invoice, page_of_invoices
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.invoices import (
    billing_details_view,
    invoice_view,
    not_invoiced_view,
)
from control_plane.domain.invoice import BillingDetails, Seller
from control_plane.domain.period import parse_month
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import billing_details, invoices
from control_plane.services.idempotency import Connection
from control_plane.services.invoices import InvoiceRun
from control_plane.settings import Settings
from control_plane.wire.exports import PERIOD_PATTERN
from control_plane.wire.invoices import (
    BillingDetailsRequest,
    BillingDetailsView,
    InvoiceBatchView,
    InvoicePage,
    InvoiceRunRequest,
    InvoiceView,
)

_BATCHES = "invoicebatches"
Period = Annotated[
    str | None,
    QueryParameter(pattern=PERIOD_PATTERN, max_length=7, description="A month, such as `2026-10`."),
]


def _seller(settings: Settings) -> Seller:
    lines = (line.strip() for line in settings.seller_address.split(";"))
    return Seller(settings.seller, tuple(filter(None, lines)), settings.seller_tax_id or None)


class FinanceInvoiceController(Controller):
    path = "/finance/invoices"
    tags = ("finance",)

    @get(
        "/",
        operation_id="listInvoicesOfAll",
        permission=Permission.INVOICES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        period: Period = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> InvoicePage:
        """The invoices of all customers, newest first."""
        month = None if period is None else parse_month(period)
        return await page_of_invoices(request, limit, cursor, of_all=True, period=month)

    @get(
        "/{invoice_id:str}",
        operation_id="getInvoiceOfAll",
        permission=Permission.INVOICES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, invoice_id: FromPath[str]) -> InvoiceView:
        """An invoice of any customer, with its lines."""
        return await one_invoice(request, invoice_id, of_all=True)

    @get(
        "/{invoice_id:str}/page",
        operation_id="getInvoicePageOfAll",
        permission=Permission.INVOICES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
        media_type="text/html",
    )
    async def show_page(self, request: ApiRequest, invoice_id: FromPath[str]) -> Response[bytes]:
        """An invoice of any customer as a page of HTML to print or to keep."""
        return await page_of_invoice(request, invoice_id, of_all=True)

    @post(
        "/",
        operation_id="issueInvoices",
        permission=Permission.INVOICES_ISSUE,
        scope=ScopeKind.PLATFORM,
        responses=made(InvoiceBatchView, 201),
        moves_money=True,
    )
    async def issue(self, request: ApiRequest, data: JSONBody[InvoiceRunRequest]) -> Response[bytes]:
        """Issue the invoices of a closed month, or compute their drafts: of one organization, or of all in batches.

        Of all, an organization that has its invoice, or used nothing, is passed over. Repeat the request with `cursor`
        until `next_cursor` is null.
        """
        principal, settings = request.principal, request.context.settings
        run = InvoiceRun(
            month=parse_month(data.period),
            draft=data.draft,
            organization_id=None
            if data.organization_id is None
            else read_organization_id(data.organization_id),
            after=paging.moment(_BATCHES, data.cursor),
            seller=_seller(settings),
            number_prefix=settings.invoice_prefix,
            platform=principal.organization_id,
            by=principal.subject.on_wire,
        )

        async def effect(connection: Connection) -> Made | Refused:
            batch = await invoices.run(connection, request.world, run)
            if isinstance(batch, Refused):
                return batch
            return Made(
                InvoiceBatchView(
                    data.period,
                    tuple(map(invoice_view, batch.invoices)),
                    tuple(map(not_invoiced_view, batch.refused)),
                    None if batch.following is None else paging.after_moment(_BATCHES, *batch.following),
                )
            )

        return await idempotency.once(request, effect, status=201)


class InvoiceDraftController(Controller):
    path = "/finance/invoice-drafts/{organization_id:str}/{month:str}"
    tags = ("finance",)

    @get(
        "/page",
        operation_id="getInvoiceDraftPage",
        permission=Permission.INVOICES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=refusable(409, 422),
        media_type="text/html",
    )
    async def show_page(
        self, request: ApiRequest, organization_id: FromPath[str], month: FromPath[str]
    ) -> Response[bytes]:
        """What would be invoiced to an organization for a month now, as a page of HTML."""
        settings = request.context.settings
        found = await invoices.draft_of(
            request.world,
            read_organization_id(organization_id),
            read_month(month),
            seller=_seller(settings),
            platform=request.principal.organization_id,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return html_of(found)


class BillingDetailsController(Controller):
    path = "/finance/billing-details/{organization_id:str}"
    tags = ("finance",)

    @get(
        "/",
        operation_id="getBillingDetails",
        permission=Permission.INVOICES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, organization_id: FromPath[str]) -> BillingDetailsView:
        """Who is invoiced for an organization, and at which rate of tax."""
        target = read_organization_id(organization_id)
        found = await billing_details.get(request.world, target, platform=request.principal.organization_id)
        if isinstance(found, Refused):
            raise refusal(found)
        return billing_details_view(target, found)

    @put(
        "/",
        operation_id="putBillingDetails",
        permission=Permission.BILLING_DETAILS_SET,
        scope=ScopeKind.PLATFORM,
        responses=refusable(408, 413, 415, 422),
    )
    async def set(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[BillingDetailsRequest]
    ) -> BillingDetailsView:
        """Set who is invoiced for an organization, and at which rate of tax, from the next invoice on."""
        target = read_organization_id(organization_id)
        details = BillingDetails(
            legal_name=data.legal_name,
            address=data.address_lines,
            country=data.country,
            tax_id=data.tax_id,
            tax_rate=data.tax_rate,
            reverse_charge=data.reverse_charge,
        )
        principal = request.principal
        found = await billing_details.put(
            request.world, target, details, platform=principal.organization_id, by=principal.subject.on_wire
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return billing_details_view(target, found)
