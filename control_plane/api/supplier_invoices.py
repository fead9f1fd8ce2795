"""Suppliers' invoices and the three-way match, for finance."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.filters import OfProvider
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.margins import Month
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.supplier_invoices import (
    match_view,
    supplier_invoice_view,
    supplier_upload_view,
)
from control_plane.domain.ids import Prefix
from control_plane.domain.period import parse_month
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import supplier_invoices, supplier_uploads
from control_plane.services.idempotency import Connection
from control_plane.services.supplier_invoices import Deciding
from control_plane.wire.margins import LINES_MAX
from control_plane.wire.supplier_invoices import (
    MatchView,
    SupplierInvoicePage,
    SupplierInvoiceRequest,
    SupplierInvoiceView,
    SupplierPartRequest,
    SupplierPostingRequest,
    SupplierUploadRequest,
    SupplierUploadView,
    SupplierVoidRequest,
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
        """Import a file that was uploaded, as the supplier's whole invoice of its month.

        It takes the place of an earlier import, which is kept. The same file again changes nothing.
        """
        upload_id = read_id(Prefix.SUPPLIER_UPLOAD, data.upload_id)

        async def effect(connection: Connection) -> Made | Refused:
            found = await supplier_uploads.finish(
                connection, request.world, upload_id, data.parts, by=request.principal.subject.on_wire
            )
            return found if isinstance(found, Refused) else Made(supplier_invoice_view(found))

        return await idempotency.once(request, effect, status=201)

    @post(
        "/{supplier_invoice_id:str}/postings",
        operation_id="postSupplierInvoice",
        permission=Permission.LEDGER_POST,
        scope=ScopeKind.PLATFORM,
        responses=made(SupplierInvoiceView, 201),
        moves_money=True,
    )
    async def settle(
        self, request: ApiRequest, supplier_invoice_id: FromPath[str], data: JSONBody[SupplierPostingRequest]
    ) -> Response[bytes]:
        """Post what a supplier's invoice comes to as a cost that we owe, less what is posted of its month already.

        Without a reason, the match of the month may have no open difference. An invoice that is posted stays so.
        """
        deciding = _deciding(request, supplier_invoice_id, data.reason)

        async def effect(connection: Connection) -> Made | Refused:
            found = await supplier_invoices.post(connection, request.world, deciding)
            return found if isinstance(found, Refused) else Made(supplier_invoice_view(found))

        return await idempotency.once(request, effect, status=201)

    @post(
        "/{supplier_invoice_id:str}/voids",
        operation_id="voidSupplierInvoice",
        permission=Permission.LEDGER_POST,
        scope=ScopeKind.PLATFORM,
        responses=made(SupplierInvoiceView, 201),
        moves_money=True,
    )
    async def void(
        self, request: ApiRequest, supplier_invoice_id: FromPath[str], data: JSONBody[SupplierVoidRequest]
    ) -> Response[bytes]:
        """Void a supplier's invoice: what is posted of its month is taken back, and the match counts it no more."""
        deciding = _deciding(request, supplier_invoice_id, data.reason)

        async def effect(connection: Connection) -> Made | Refused:
            found = await supplier_invoices.void(connection, request.world, deciding, data.reason)
            return found if isinstance(found, Refused) else Made(supplier_invoice_view(found))

        return await idempotency.once(request, effect, status=201)


def _deciding(request: ApiRequest, invoice_id: str, reason: str | None) -> Deciding:
    principal = request.principal
    return Deciding(
        read_id(Prefix.SUPPLIER_INVOICE, invoice_id),
        reason,
        principal.subject.on_wire,
        principal.organization_id,
    )


class SupplierUploadController(Controller):
    path = "/finance/supplier-uploads"
    tags = ("finance",)

    @post(
        "/",
        operation_id="beginSupplierUpload",
        permission=Permission.SUPPLIER_INVOICES_IMPORT,
        scope=ScopeKind.PLATFORM,
        responses=made(SupplierUploadView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[SupplierUploadRequest]) -> Response[bytes]:
        """Begin to upload a supplier's invoice of a month. Its parts follow, and then it is imported.

        A file that is not imported within a day is dropped.
        """
        month = parse_month(data.period)

        async def effect(connection: Connection) -> Made | Refused:
            found = await supplier_uploads.begin(
                connection, request.world, data.provider, month, by=request.principal.subject.on_wire
            )
            return found if isinstance(found, Refused) else Made(supplier_upload_view(found))

        return await idempotency.once(request, effect, status=201)

    @post(
        "/{upload_id:str}/parts",
        operation_id="uploadSupplierPart",
        permission=Permission.SUPPLIER_INVOICES_IMPORT,
        scope=ScopeKind.PLATFORM,
        responses=made(SupplierUploadView, 201),
    )
    async def put(
        self, request: ApiRequest, upload_id: FromPath[str], data: JSONBody[SupplierPartRequest]
    ) -> Response[bytes]:
        """Send a part of the file, of whole lines. It is refused with the number of a line that is wrong."""
        target = read_id(Prefix.SUPPLIER_UPLOAD, upload_id)

        async def effect(connection: Connection) -> Made | Refused:
            found = await supplier_uploads.put(
                connection, target, number=data.number, first_line=data.first_line, content=data.csv
            )
            return found if isinstance(found, Refused) else Made(supplier_upload_view(found))

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
