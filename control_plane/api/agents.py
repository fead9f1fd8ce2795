"""The agents on machines."""

from typing import Annotated

from litestar import Controller, get
from litestar.params import QueryParameter

from control_plane.api import paging
from control_plane.api.documents import PROBLEMS
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.agents import agent_view
from control_plane.domain.permission import Permission
from control_plane.domain.scope import ScopeKind
from control_plane.services import agents
from control_plane.services.agents import Place
from control_plane.wire.agents import AgentPage

Silent = Annotated[bool, QueryParameter(description="Only those that reported before, and do not now.")]


class AgentController(Controller):
    path = "/operator/agents"
    tags = ("agents",)

    @get(
        "/",
        operation_id="listAgents",
        permission=Permission.AGENTS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        silent: Silent = False,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> AgentPage:
        """The agents on machines with a customer, and what each reported last."""
        after = paging.place("agents", cursor, Place)
        found = await agents.page(
            request.world, request.principal.organization_id, silent=silent, after=after, limit=limit + 1
        )
        page, following = paging.cut(
            found, limit, lambda agent: paging.after_place("agents", Place(agent.claim_id))
        )
        now = request.world.now()
        return AgentPage(tuple(agent_view(agent, now) for agent in page), following)
