"""Liabilities, for operators: what costs money at providers, serves nobody and has to go."""

from collections.abc import Iterable

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.liabilities import liability_view, liability_views
from control_plane.api.views.money import money
from control_plane.domain.ids import Prefix
from control_plane.domain.money import Nano
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import liabilities
from control_plane.services.idempotency import Connection
from control_plane.wire.common import Money
from control_plane.wire.liabilities import EndRequest, LiabilityList, LiabilityView


class LiabilityController(Controller):
    path = "/operator"
    tags = ("liabilities",)

    @get(
        "/liabilities/{liability_id:str}",
        operation_id="getLiability",
        permission=Permission.FLEET_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, liability_id: FromPath[str]) -> LiabilityView:
        """One liability."""
        found = await liabilities.get(
            request.world, request.principal.organization_id, read_id(Prefix.LIABILITY, liability_id)
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return liability_view(found, request.world.now())

    @post(
        "/liabilities/{liability_id:str}/end",
        operation_id="endLiability",
        permission=Permission.ORPHANS_DECIDE,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(LiabilityView, 202),
    )
    async def end(
        self, request: ApiRequest, liability_id: FromPath[str], data: JSONBody[EndRequest]
    ) -> Response[bytes]:
        """Decide that an orphan is terminated, or what a launch left deleted, whatever holds it back."""
        liability = read_id(Prefix.LIABILITY, liability_id)

        async def effect(connection: Connection) -> Made | Refused:
            found = await liabilities.end(
                connection, request.world, liability, why=data.why, actor=request.actor
            )
            if isinstance(found, Refused):
                return found
            return Made(liability_view(found, request.world.now()))

        return await idempotency.once(request, effect, status=202)

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
        page, following = paging.window(
            "liabilities", views, lambda view: view.id or "", limit=limit, cursor=cursor
        )
        return LiabilityList(
            items=tuple(page),
            count=len(views),
            unpriced=sum(view.cost_per_hour is None for view in views),
            cost_per_hour=_sum(view.cost_per_hour for view in views),
            cost=_sum(view.cost for view in views),
            next_cursor=following,
        )


def _sum(amounts: Iterable[Money | None]) -> Money:
    return money(Nano(sum(amount.nano for amount in amounts if amount is not None)))
