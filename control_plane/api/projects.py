"""Projects of the caller's organization."""

from litestar import Controller, Response, get, post
from litestar.params import JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.idempotency import Made
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.projects import project_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.services import projects
from control_plane.services.idempotency import Connection
from control_plane.wire.projects import ProjectPage, ProjectRequest, ProjectView


class ProjectController(Controller):
    path = "/projects"
    tags = ["projects"]  # noqa: RUF012 - the framework's way

    @get("/", permission=Permission.PROJECTS_READ, responses=PROBLEMS)
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ProjectPage:
        """Your projects, oldest first; the first one is the default project."""
        found = await projects.page(
            request.world,
            request.principal.organization_id,
            after=paging.moment("projects", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda project: paging.after_moment("projects", project.created_at, project.id)
        )
        return ProjectPage(tuple(project_view(project) for project in page), following)

    @post("/", permission=Permission.PROJECTS_CREATE, responses=made(ProjectView, 201))
    async def create(self, request: ApiRequest, data: JSONBody[ProjectRequest]) -> Response[bytes]:
        """Create a project, to be named in requests for leases."""

        async def effect(connection: Connection) -> Made | Refused:
            project = await projects.create(
                connection, request.world, request.principal.organization_id, name=data.name
            )
            return project if isinstance(project, Refused) else Made(project_view(project))

        return await idempotency.once(request, effect, status=201)
