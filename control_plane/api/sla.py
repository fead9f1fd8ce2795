"""Promises of leases: how they stand, the report of a month, and the approval of credits that are many."""

from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_lease_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.sla import (
    breach_view,
    lease_sla_view,
    sla_approval_view,
    sla_credit_list,
    sla_report_view,
)
from control_plane.domain.ids import OrganizationId, Prefix, SlaBreachId
from control_plane.domain.period import parse_month
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import sla
from control_plane.services.idempotency import Connection
from control_plane.wire.exports import PERIOD_PATTERN
from control_plane.wire.sla import (
    LeaseSlaView,
    SlaApprovalRequest,
    SlaApprovalView,
    SlaBreachView,
    SlaCreditList,
    SlaDecisionRequest,
    SlaReportView,
)

Month = Annotated[
    str | None,
    QueryParameter(
        pattern=PERIOD_PATTERN,
        max_length=7,
        description="A month, such as `2026-10`; the current one without it.",
    ),
]


@dataclass(frozen=True, slots=True)
class _AfterBreach:
    """The breach after which a page starts."""

    id: UUID


class SlaController(Controller):
    path = "/"
    tags = ("sla",)

    @get(
        "/leases/{lease_id:str}/sla",
        operation_id="getLeaseSla",
        permission=Permission.LEASES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def of_lease(self, request: ApiRequest, lease_id: FromPath[str]) -> LeaseSlaView:
        """What is promised with the lease, how each promise stands now, and what was given back for broken ones."""
        found = await sla.of_lease(
            request.world, request.principal.organization_id, read_lease_id(lease_id), reach=request.reach
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return lease_sla_view(found)

    @get(
        "/sla-report",
        operation_id="getSlaReport",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=refusable(409, 422),
    )
    async def report(
        self,
        request: ApiRequest,
        *,
        month: Month = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> SlaReportView:
        """What a month came to for your organization: promises kept and broken, and what was given back."""
        whose = request.principal.organization_id
        return await _report(request, month, whose=whose, limit=limit, cursor=cursor)

    @get(
        "/finance/sla-report",
        operation_id="getSlaReportOfAll",
        permission=Permission.LEDGER_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(409, 422),
    )
    async def report_of_all(
        self,
        request: ApiRequest,
        *,
        month: Month = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> SlaReportView:
        """What a month came to for all organizations: promises kept and broken, and what was given back."""
        return await _report(request, month, whose=None, limit=limit, cursor=cursor)

    @post(
        "/finance/sla-approvals",
        operation_id="approveSlaCredits",
        permission=Permission.LEDGER_POST,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        moves_money=True,
        responses=made(SlaApprovalView, 200),
    )
    async def approve(self, request: ApiRequest, data: JSONBody[SlaApprovalRequest]) -> Response[bytes]:
        """Let the credits that wait now be posted. They wait when there are suspiciously many of them."""

        async def effect(connection: Connection) -> Made | Refused:
            by = request.principal.subject.on_wire
            return Made(
                sla_approval_view(await sla.approve(connection, request.world, by=by, reason=data.reason))
            )

        return await idempotency.once(request, effect, status=200)

    @get(
        "/finance/sla-credits",
        operation_id="listWaitingSlaCredits",
        permission=Permission.LEDGER_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def undecided(
        self, request: ApiRequest, *, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> SlaCreditList:
        """The broken promises of which a part of the credit waits for your decision.

        Nothing but what was read on the machine shows that part, and its customer has root there.
        """
        after = paging.place("sla_credits", cursor, _AfterBreach)
        found = await sla.undecided(
            request.world,
            request.principal.organization_id,
            after=None if after is None else after.id,
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda breach: paging.after_place("sla_credits", _AfterBreach(breach.id))
        )
        return sla_credit_list(page, following)

    @post(
        "/finance/sla-credits/{breach_id:str}/approve",
        operation_id="approveSlaCredit",
        permission=Permission.LEDGER_POST,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        moves_money=True,
        responses=made(SlaBreachView, 200),
    )
    async def approve_one(
        self, request: ApiRequest, breach_id: FromPath[str], data: JSONBody[SlaDecisionRequest]
    ) -> Response[bytes]:
        """Let what waits of a credit be posted, within seconds.

        Each is decided once, and nobody decides on that of a lease that they asked for.
        """
        return await _decide(request, breach_id, approved=True, reason=data.reason)

    @post(
        "/finance/sla-credits/{breach_id:str}/refuse",
        operation_id="refuseSlaCredit",
        permission=Permission.LEDGER_POST,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(SlaBreachView, 200),
    )
    async def refuse_one(
        self, request: ApiRequest, breach_id: FromPath[str], data: JSONBody[SlaDecisionRequest]
    ) -> Response[bytes]:
        """Refuse what waits of a credit. Its customer reads the reason."""
        return await _decide(request, breach_id, approved=False, reason=data.reason)


async def _decide(request: ApiRequest, text: str, *, approved: bool, reason: str) -> Response[bytes]:
    breach_id = SlaBreachId(read_id(Prefix.SLA_BREACH, text))

    async def effect(connection: Connection) -> Made | Refused:
        by = request.principal.subject.on_wire
        found = await sla.decide(
            connection, request.world, breach_id, approved=approved, by=by, reason=reason
        )
        return found if isinstance(found, Refused) else Made(breach_view(found))

    return await idempotency.once(request, effect, status=200)


async def _report(
    request: ApiRequest, month: str | None, *, whose: OrganizationId | None, limit: int, cursor: str | None
) -> SlaReportView:
    after = paging.place("sla_report", cursor, _AfterBreach)
    found = await sla.report(
        request.world,
        request.principal.organization_id,
        None if month is None else parse_month(month),
        whose=whose,
        after=None if after is None else after.id,
        limit=limit + 1,
    )
    if isinstance(found, Refused):
        raise refusal(found)
    page, following = paging.cut(
        found.breaches, limit, lambda breach: paging.after_place("sla_report", _AfterBreach(breach.id))
    )
    return sla_report_view(replace(found, breaches=page), following)
