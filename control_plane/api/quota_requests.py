"""Quota requests: asked for by customers, decided by their owners and admins, or by operators."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_organization_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.envelopes import limits_of, quota_request_view
from control_plane.domain.envelope import Level
from control_plane.domain.ids import OrganizationId, Prefix, QuotaRequestId
from control_plane.domain.permission import Permission
from control_plane.domain.quota_request import QuotaRequest, QuotaRequestState
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import organizations, quota_requests
from control_plane.services.envelopes import Place
from control_plane.services.idempotency import Connection
from control_plane.services.quota_requests import CEILING, WITHIN_CEILING, Decide, Deciding
from control_plane.wire.envelopes import (
    AnswerRequest,
    QuotaRequestPage,
    QuotaRequestRequest,
    QuotaRequestView,
)

InStates = Annotated[
    list[QuotaRequestState] | None,
    QueryParameter(name="state", max_items=8, description="Only requests in these states; may be repeated."),
]
_ALL = CEILING | WITHIN_CEILING


async def _decide(
    request: ApiRequest,
    organization_id: OrganizationId,
    request_id: str,
    decide: Decide,
    *,
    levels: frozenset[Level],
    reason: str,
) -> Response[bytes]:
    """Decide once per idempotency key, in a transaction of the organization that asked."""
    deciding = Deciding(
        organization_id,
        QuotaRequestId(read_id(Prefix.QUOTA_REQUEST, request_id)),
        levels,
        request.reach,
        request.principal.subject.on_wire,
        reason,
        request.actor,
        back_to=request.principal.organization_id,
    )

    async def effect(connection: Connection) -> Made | Refused:
        decided = await quota_requests.decide(connection, request.world, deciding, decide)
        if isinstance(decided, Refused):
            return decided
        return Made(quota_request_view(decided, request.world.now()))

    return await idempotency.once(request, effect, status=200)


_Read = Callable[[tuple[datetime, UUID] | None, int], Awaitable[Sequence[QuotaRequest]]]


async def _page(request: ApiRequest, limit: int, cursor: str | None, read: _Read) -> QuotaRequestPage:
    found = await read(paging.moment("quota_requests", cursor), limit + 1)
    page, following = paging.cut(
        found, limit, lambda row: paging.after_moment("quota_requests", row.asked_at, row.id)
    )
    now = request.world.now()
    return QuotaRequestPage(tuple(quota_request_view(row, now) for row in page), following)


async def _page_of(
    request: ApiRequest,
    organization_id: OrganizationId,
    states: list[QuotaRequestState] | None,
    limit: int,
    cursor: str | None,
) -> QuotaRequestPage:
    async def read(before: tuple[datetime, UUID] | None, size: int) -> Sequence[QuotaRequest]:
        return await quota_requests.page(
            request.world,
            organization_id,
            states=states,
            before=before,
            limit=size,
            reach=request.reach,
        )

    return await _page(request, limit, cursor, read)


class QuotaRequestController(Controller):
    path = "/quota-requests"
    tags = ("envelopes",)

    @post(
        "/",
        operation_id="createQuotaRequest",
        permission=Permission.QUOTA_REQUESTS_CREATE,
        scope=ScopeKind.ENVIRONMENT,
        responses=made(QuotaRequestView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[QuotaRequestRequest]) -> Response[bytes]:
        """Ask for higher limits of your organization, of a project or of an environment.

        Somebody else approves or declines; after 14 days the request expires.
        """
        limits = limits_of(data.limits, "limits.")
        place = _place(data)

        async def effect(connection: Connection) -> Made | Refused:
            asked = await quota_requests.create(
                connection,
                request.world,
                request.principal.organization_id,
                place,
                limits,
                reason=data.reason,
                by=request.principal.subject.on_wire,
                reach=request.reach,
            )
            if isinstance(asked, Refused):
                return asked
            return Made(quota_request_view(asked, request.world.now()))

        return await idempotency.once(request, effect, status=201, collection="/v1/quota-requests")

    @get(
        "/",
        operation_id="listQuotaRequests",
        permission=Permission.QUOTA_REQUESTS_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        states: InStates = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> QuotaRequestPage:
        """The quota requests of your organization, its projects and environments, newest first."""
        return await _page_of(request, request.principal.organization_id, states, limit, cursor)

    @get(
        "/{quota_request_id:str}",
        operation_id="getQuotaRequest",
        permission=Permission.QUOTA_REQUESTS_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, quota_request_id: FromPath[str]) -> QuotaRequestView:
        """One quota request."""
        found = await quota_requests.show(
            request.world,
            request.principal.organization_id,
            QuotaRequestId(read_id(Prefix.QUOTA_REQUEST, quota_request_id)),
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return quota_request_view(found, request.world.now())

    @post(
        "/{quota_request_id:str}/approve",
        operation_id="approveQuotaRequest",
        permission=Permission.QUOTA_REQUESTS_DECIDE,
        scope=ScopeKind.ORGANIZATION,
        status_code=200,
        responses=made(QuotaRequestView, 200),
    )
    async def approve(
        self, request: ApiRequest, quota_request_id: FromPath[str], data: JSONBody[AnswerRequest]
    ) -> Response[bytes]:
        """Approve a request within the ceiling, which changes the envelope. Nobody approves their own."""
        own, approve = request.principal.organization_id, quota_requests.approve
        return await _decide(
            request, own, quota_request_id, approve, levels=WITHIN_CEILING, reason=data.reason
        )

    @post(
        "/{quota_request_id:str}/decline",
        operation_id="declineQuotaRequest",
        permission=Permission.QUOTA_REQUESTS_DECIDE,
        scope=ScopeKind.ORGANIZATION,
        status_code=200,
        responses=made(QuotaRequestView, 200),
    )
    async def decline(
        self, request: ApiRequest, quota_request_id: FromPath[str], data: JSONBody[AnswerRequest]
    ) -> Response[bytes]:
        """Decline a request within the ceiling. The envelope stays as it is."""
        own, decline = request.principal.organization_id, quota_requests.decline
        return await _decide(
            request, own, quota_request_id, decline, levels=WITHIN_CEILING, reason=data.reason
        )

    @post(
        "/{quota_request_id:str}/withdraw",
        operation_id="withdrawQuotaRequest",
        permission=Permission.QUOTA_REQUESTS_CREATE,
        scope=ScopeKind.ENVIRONMENT,
        status_code=200,
        responses=made(QuotaRequestView, 200),
    )
    async def withdraw(self, request: ApiRequest, quota_request_id: FromPath[str]) -> Response[bytes]:
        """Take back what you asked for."""
        await idempotency.no_body(request)
        own, withdraw = request.principal.organization_id, quota_requests.withdraw
        return await _decide(request, own, quota_request_id, withdraw, levels=_ALL, reason="withdrawn")


class CeilingRequestController(Controller):
    path = "/operator"
    tags = ("envelopes",)

    @get(
        "/quota-requests",
        operation_id="listQuotaRequestsOfAll",
        permission=Permission.ORGANIZATIONS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index_of_all(
        self,
        request: ApiRequest,
        states: InStates = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> QuotaRequestPage:
        """The quota requests of all organizations, newest first."""

        async def read(before: tuple[datetime, UUID] | None, size: int) -> Sequence[QuotaRequest]:
            return await quota_requests.page_of_all(request.world, states=states, before=before, limit=size)

        return await _page(request, limit, cursor, read)

    @get(
        "/organizations/{organization_id:str}/quota-requests",
        operation_id="listQuotaRequestsOfOrganization",
        permission=Permission.ORGANIZATIONS_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        organization_id: FromPath[str],
        states: InStates = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> QuotaRequestPage:
        """The quota requests of an organization, newest first."""
        found = await organizations.find(request.world, read_organization_id(organization_id))
        if isinstance(found, Refused):
            raise refusal(found)
        return await _page_of(request, found.id, states, limit, cursor)

    @post(
        "/organizations/{organization_id:str}/quota-requests/{quota_request_id:str}/approve",
        operation_id="approveCeilingRequest",
        permission=Permission.QUOTA_REQUESTS_DECIDE_CEILING,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(QuotaRequestView, 200),
    )
    async def approve(
        self,
        request: ApiRequest,
        organization_id: FromPath[str],
        quota_request_id: FromPath[str],
        data: JSONBody[AnswerRequest],
    ) -> Response[bytes]:
        """Approve a request for a higher ceiling, which changes the ceiling."""
        other, approve = read_organization_id(organization_id), quota_requests.approve
        return await _decide(request, other, quota_request_id, approve, levels=CEILING, reason=data.reason)

    @post(
        "/organizations/{organization_id:str}/quota-requests/{quota_request_id:str}/decline",
        operation_id="declineCeilingRequest",
        permission=Permission.QUOTA_REQUESTS_DECIDE_CEILING,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(QuotaRequestView, 200),
    )
    async def decline(
        self,
        request: ApiRequest,
        organization_id: FromPath[str],
        quota_request_id: FromPath[str],
        data: JSONBody[AnswerRequest],
    ) -> Response[bytes]:
        """Decline a request for a higher ceiling."""
        other, decline = read_organization_id(organization_id), quota_requests.decline
        return await _decide(request, other, quota_request_id, decline, levels=CEILING, reason=data.reason)


def _place(data: QuotaRequestRequest) -> Place:
    if data.project is None:
        return Place(Level.CEILING)
    level = Level.PROJECT if data.environment is None else Level.ENVIRONMENT
    return Place(level, data.project, data.environment)
