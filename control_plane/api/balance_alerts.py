"""Warnings of a low balance and of a monthly budget."""

from litestar import Controller, get, put
from litestar.params import JSONBody

from control_plane.api import paging
from control_plane.api.documents import PROBLEMS, refusable
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.balance_alerts import alerts_of, alerts_view, balance_event_view
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.services import balance_alerts
from control_plane.wire.balance_alerts import BalanceAlertsRequest, BalanceAlertsView, BalanceEventPage

_CURSOR = "balanceevents"


class BalanceAlertController(Controller):
    path = "/balance"
    tags = ("billing",)

    @get(
        "/alerts",
        operation_id="getBalanceAlerts",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest) -> BalanceAlertsView:
        """What your organization is warned of, and where its balance and its monthly budget stand."""
        return alerts_view(await balance_alerts.show(request.world, request.principal.organization_id))

    @put(
        "/alerts",
        operation_id="putBalanceAlerts",
        permission=Permission.BALANCE_ALERTS_SET,
        scope=ScopeKind.ORGANIZATION,
        responses=refusable(408, 413, 415, 422),
    )
    async def set(self, request: ApiRequest, data: JSONBody[BalanceAlertsRequest]) -> BalanceAlertsView:
        """Set what your organization is warned of. It replaces what was set before as a whole."""
        principal = request.principal
        shown = await balance_alerts.put(
            request.world, principal.organization_id, alerts_of(data), by=principal.subject.on_wire
        )
        return alerts_view(shown)

    @get(
        "/events",
        operation_id="listBalanceEvents",
        permission=Permission.BILLING_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def events(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> BalanceEventPage:
        """What your organization was told of its balance and its budget, newest first."""
        found = await balance_alerts.page(
            request.world,
            request.principal.organization_id,
            before=paging.number(_CURSOR, cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(found, limit, lambda line: paging.after_number(_CURSOR, line.number))
        return BalanceEventPage(tuple(map(balance_event_view, page)), following)
