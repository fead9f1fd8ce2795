"""Preemptions, for operators: list them and what was decided, and say whether they happen."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import made, refusable
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_lease_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.preemptions import decision_view, preemption_view, switch_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import preemptions
from control_plane.services.idempotency import Connection
from control_plane.wire.common import LEASE_ID_PATTERN
from control_plane.wire.preemptions import (
    PreemptionDecisionPage,
    PreemptionPage,
    PreemptionSwitchRequest,
    PreemptionSwitchView,
)

Closed = Annotated[bool, QueryParameter(description="Also those that are over.")]
ForLease = Annotated[
    str | None,
    QueryParameter(
        name="for_lease_id",
        pattern=LEASE_ID_PATTERN,
        max_length=35,
        description="Only about this lease in need.",
    ),
]


class PreemptionController(Controller):
    path = "/operator"
    tags = ("fleet",)

    @get(
        "/preemptions",
        operation_id="listPreemptions",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        closed: Closed = False,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> PreemptionPage:
        """Interruptible leases that yield their machine to a lease whose readiness is promised, the latest first."""
        found = await preemptions.page(
            request.world,
            request.principal.organization_id,
            only_open=not closed,
            before=paging.moment("preemptions", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("preemptions", row.notified_at, row.id)
        )
        return PreemptionPage(tuple(map(preemption_view, page)), following)

    @get(
        "/preemption-decisions",
        operation_id="listPreemptionDecisions",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def decisions(
        self,
        request: ApiRequest,
        *,
        for_lease_id: ForLease = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> PreemptionDecisionPage:
        """What was decided about leases in need, with the interruptible leases that were looked at."""
        found = await preemptions.decisions(
            request.world,
            request.principal.organization_id,
            for_lease_id=None if for_lease_id is None else read_lease_id(for_lease_id),
            before=paging.moment("preemption_decisions", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("preemption_decisions", row.at, row.id)
        )
        return PreemptionDecisionPage(tuple(map(decision_view, page)), following)

    @get(
        "/preemption-switch",
        operation_id="getPreemptionSwitch",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(),
    )
    async def switch(self, request: ApiRequest) -> PreemptionSwitchView:
        """Whether machines of interruptible leases are taken back, or it is only decided and stored."""
        return switch_view(await preemptions.switch(request.world, request.principal.organization_id))

    @post(
        "/preemption-switch",
        operation_id="putPreemptionSwitch",
        permission=Permission.PREEMPTIONS_SWITCH,
        scope=ScopeKind.PLATFORM,
        status_code=200,
        responses=made(PreemptionSwitchView, 200),
    )
    async def put_switch(
        self, request: ApiRequest, data: JSONBody[PreemptionSwitchRequest]
    ) -> Response[bytes]:
        """Have machines of interruptible leases taken back, or not. When not, what was announced is withdrawn."""

        async def effect(connection: Connection) -> Made | Refused:
            by = request.principal.subject.on_wire
            put = await preemptions.put_switch(
                connection, request.world, armed=data.armed, by=by, reason=data.reason
            )
            return Made(switch_view(put))

        return await idempotency.once(request, effect, status=200)
