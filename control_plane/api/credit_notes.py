"""Credit notes: finance issues them, and customers read their own."""

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.credit_note_page import credit_note_page
from control_plane.api.views.credit_notes import credit_note_summary, credit_note_view
from control_plane.api.views.printed_page import HEADERS
from control_plane.domain.credit_note import LineToCredit
from control_plane.domain.ids import Prefix
from control_plane.domain.ledger import Approval
from control_plane.domain.money import NANO_PER_CENT, parse_usd
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import credit_notes
from control_plane.services.credit_notes import CreditNoteOrder, FullCreditNote
from control_plane.services.idempotency import Connection
from control_plane.wire.credit_notes import (
    CreditNoteLineRequest,
    CreditNotePage,
    CreditNoteRequest,
    CreditNoteView,
)


class CreditNoteController(Controller):
    path = "/credit-notes"
    tags = ("invoices",)

    @get(
        "/",
        operation_id="listCreditNotes",
        permission=Permission.INVOICES_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> CreditNotePage:
        """The credit notes of your organization's invoices, newest first."""
        return await _page(request, limit, cursor, of_all=False)

    @get(
        "/{credit_note_id:str}",
        operation_id="getCreditNote",
        permission=Permission.INVOICES_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, credit_note_id: FromPath[str]) -> CreditNoteView:
        """A credit note with its lines."""
        return await _one(request, credit_note_id, of_all=False)

    @get(
        "/{credit_note_id:str}/page",
        operation_id="getCreditNotePage",
        permission=Permission.INVOICES_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
        media_type="text/html",
    )
    async def show_page(self, request: ApiRequest, credit_note_id: FromPath[str]) -> Response[bytes]:
        """A credit note as a page of HTML to print or to keep."""
        return await _html(request, credit_note_id, of_all=False)


class FinanceCreditNoteController(Controller):
    path = "/finance/credit-notes"
    tags = ("finance",)

    @get(
        "/",
        operation_id="listCreditNotesOfAll",
        permission=Permission.INVOICES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> CreditNotePage:
        """The credit notes of all customers, newest first."""
        return await _page(request, limit, cursor, of_all=True)

    @get(
        "/{credit_note_id:str}",
        operation_id="getCreditNoteOfAll",
        permission=Permission.INVOICES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, credit_note_id: FromPath[str]) -> CreditNoteView:
        """A credit note of any customer, with its lines."""
        return await _one(request, credit_note_id, of_all=True)

    @get(
        "/{credit_note_id:str}/page",
        operation_id="getCreditNotePageOfAll",
        permission=Permission.INVOICES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
        media_type="text/html",
    )
    async def show_page(self, request: ApiRequest, credit_note_id: FromPath[str]) -> Response[bytes]:
        """A credit note of any customer as a page of HTML to print or to keep."""
        return await _html(request, credit_note_id, of_all=True)

    @post(
        "/",
        operation_id="issueCreditNote",
        permission=Permission.INVOICES_ISSUE,
        scope=ScopeKind.PLATFORM,
        responses=made(CreditNoteView, 201),
        moves_money=True,
    )
    async def issue(self, request: ApiRequest, data: JSONBody[CreditNoteRequest]) -> Response[bytes]:
        """Correct an issued invoice in whole or in part.

        What is not paid of its lines and their tax is no longer due, and what was paid goes to the balance. It is
        booked in the open period, whichever month was invoiced.
        """
        principal = request.principal
        order = CreditNoteOrder(
            invoice_id=read_id(Prefix.INVOICE, data.invoice_id),
            lines=None if data.lines is None else [_line(line) for line in data.lines],
            approval=Approval(principal.subject.on_wire, data.reason),
            number_prefix=request.context.settings.credit_note_prefix,
            platform=principal.organization_id,
        )

        async def effect(connection: Connection) -> Made | Refused:
            found = await credit_notes.issue(connection, request.world, order)
            return found if isinstance(found, Refused) else Made(credit_note_view(found))

        return await idempotency.once(request, effect, status=201)


def _line(line: CreditNoteLineRequest) -> LineToCredit:
    cents = None if line.amount_usd is None else parse_usd(line.amount_usd) // NANO_PER_CENT
    return LineToCredit(line.line, cents)


async def _page(request: ApiRequest, limit: int, cursor: str | None, *, of_all: bool) -> CreditNotePage:
    listed = "financecreditnotes" if of_all else "creditnotes"
    found, invoices = await credit_notes.page(
        request.world,
        request.principal.organization_id,
        of_all=of_all,
        before=paging.moment(listed, cursor),
        limit=limit + 1,
    )
    page, following = paging.cut(
        found, limit, lambda note: paging.after_moment(listed, note.issued_at, note.id)
    )
    return CreditNotePage(
        tuple(credit_note_summary(note, invoices[note.invoice_id]) for note in page), following
    )


async def _one(request: ApiRequest, credit_note_id: str, *, of_all: bool) -> CreditNoteView:
    return credit_note_view(await _found(request, credit_note_id, of_all=of_all))


async def _html(request: ApiRequest, credit_note_id: str, *, of_all: bool) -> Response[bytes]:
    found = await _found(request, credit_note_id, of_all=of_all)
    headers = {**HEADERS, "Content-Disposition": f'inline; filename="{found.note.number}.html"'}
    return Response(credit_note_page(found), media_type="text/html", headers=headers)


async def _found(request: ApiRequest, credit_note_id: str, *, of_all: bool) -> FullCreditNote:
    found = await credit_notes.get(
        request.world,
        request.principal.organization_id,
        read_id(Prefix.CREDIT_NOTE, credit_note_id),
        of_all=of_all,
    )
    if isinstance(found, Refused):
        raise refusal(found)
    return found
