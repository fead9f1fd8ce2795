"""The reports of the reconciler's loops."""

from litestar import Controller, get

from control_plane.api import paging
from control_plane.api.documents import PROBLEMS
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.loops import loop_view, missing_loop_view
from control_plane.domain.loop_silence import judged
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.services import loops
from control_plane.wire.loops import LoopList


class LoopController(Controller):
    path = "/operator/loops"
    tags = ("loops",)

    @get(
        "/",
        operation_id="listLoops",
        permission=Permission.LOOPS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> LoopList:
        """The last report of every loop in every replica, and the loops that no replica reports on."""
        reports, missing = await loops.reports(request.world)
        now = request.world.now()
        page, following = paging.window(
            "loops",
            judged(reports, now),
            lambda row: f"{row[0].loop} {row[0].account} {row[0].replica}",
            limit=limit,
            cursor=cursor,
        )
        views = tuple(loop_view(report, silence, now) for report, silence in page)
        return LoopList(views, tuple(map(missing_loop_view, missing)), following)
