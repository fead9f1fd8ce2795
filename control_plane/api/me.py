"""Who the caller is."""

from litestar import Controller, get

from control_plane.api.documents import PROBLEMS
from control_plane.api.requests import ApiRequest
from control_plane.api.views.roles import me_view
from control_plane.domain.permission import Permission
from control_plane.domain.scope import AT_ANY_SCOPE
from control_plane.services.me import me
from control_plane.wire.roles import MeView


class MeController(Controller):
    path = "/me"
    tags = ("roles",)

    @get("/", operation_id="getMe", permission=Permission.ME_READ, scope=AT_ANY_SCOPE, responses=PROBLEMS)
    async def show(self, request: ApiRequest) -> MeView:
        """Who you are, and what you may do where with this API key."""
        return me_view(await me(request.world, request.principal))
