"""The reports of the reconciler's loops."""

from litestar import Controller, get

from control_plane.api.documents import PROBLEMS
from control_plane.api.requests import ApiRequest
from control_plane.api.views.loops import loop_view
from control_plane.domain.permission import Permission
from control_plane.services import loops
from control_plane.wire.loops import LoopList


class LoopController(Controller):
    path = "/operator/loops"
    tags = ["loops"]  # noqa: RUF012 - the framework's way

    @get("/", permission=Permission.LOOPS_READ, responses=PROBLEMS)
    async def index(self, request: ApiRequest) -> LoopList:
        """The last report of every loop."""
        now = request.world.now()
        return LoopList(tuple(loop_view(row, now) for row in await loops.reports(request.world)))
