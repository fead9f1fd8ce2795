"""Environments of the projects of the caller's organization."""

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_word
from control_plane.api.paging import Cursor, Limit
from control_plane.api.projects import project_in_path
from control_plane.api.requests import ApiRequest
from control_plane.api.views.environments import environment_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import environments, projects
from control_plane.services.idempotency import Connection
from control_plane.wire.environments import EnvironmentPage, EnvironmentRequest, EnvironmentView


class EnvironmentController(Controller):
    path = "/projects/{project:str}/environments"
    tags = ("projects",)

    @get(
        "/",
        operation_id="listEnvironments",
        permission=Permission.ENVIRONMENTS_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        project: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> EnvironmentPage:
        """The environments of a project that you may see, oldest first; the first one is the default environment."""
        after = paging.moment("environments", cursor)
        of = await project_in_path(request, project)
        found = await environments.page(request.world, of, reach=request.reach, after=after, limit=limit + 1)
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("environments", row.created_at, row.id)
        )
        return EnvironmentPage(tuple(environment_view(row) for row in page), following)

    @post(
        "/",
        operation_id="createEnvironment",
        permission=Permission.ENVIRONMENTS_CREATE,
        scope=ScopeKind.PROJECT,
        responses=made(EnvironmentView, 201),
    )
    async def create(
        self, request: ApiRequest, project: FromPath[str], data: JSONBody[EnvironmentRequest]
    ) -> Response[bytes]:
        """Create an environment of a project, to be named in requests for leases."""
        word = read_word("project", project)

        async def effect(connection: Connection) -> Made | Refused:
            of = await projects.of_path(
                connection, request.principal.organization_id, word, reach=request.reach
            )
            if isinstance(of, Refused):
                return of
            environment = await environments.create(connection, request.world, of, name=data.name)
            return environment if isinstance(environment, Refused) else Made(environment_view(environment))

        return await idempotency.once(request, effect, status=201)
