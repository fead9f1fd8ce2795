"""Liabilities, for operators: what costs money at providers, serves nobody and has to go."""

from collections.abc import Iterable

from litestar import Controller, get

from control_plane.api import paging
from control_plane.api.documents import refusable
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.liabilities import liability_views
from control_plane.api.views.money import money
from control_plane.domain.money import Nano
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.services import liabilities
from control_plane.wire.common import Money
from control_plane.wire.liabilities import LiabilityList, LiabilityView


class LiabilityController(Controller):
    path = "/operator"
    tags = ("liabilities",)

    @get(
        "/liabilities",
        operation_id="listLiabilities",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> LiabilityList:
        """What costs money for nobody: machines that no lease holds, orphans, and what launches left."""
        found = await liabilities.every(request.world, request.principal.organization_id)
        views = liability_views(found, request.world.now())
        page, following = paging.window("liabilities", views, _name, limit=limit, cursor=cursor)
        return LiabilityList(
            items=tuple(page),
            count=len(views),
            unpriced=sum(view.cost_per_hour is None for view in views),
            cost_per_hour=_sum(view.cost_per_hour for view in views),
            cost=_sum(view.cost for view in views),
            next_cursor=following,
        )


def _name(view: LiabilityView) -> str:
    return (
        view.machine_id
        if view.kind == "machine" and view.machine_id
        else f"{view.kind} {view.account} {view.child_kind} {view.provider_ref}"
    )


def _sum(amounts: Iterable[Money | None]) -> Money:
    return money(Nano(sum(amount.nano for amount in amounts if amount is not None)))
