"""Projects of the caller's organization."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_word, word_in_query
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.projects import project_view
from control_plane.domain.ids import ProjectId
from control_plane.domain.permission import Permission
from control_plane.domain.project import Project
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import projects
from control_plane.services.idempotency import Connection
from control_plane.wire.projects import ProjectPage, ProjectRequest, ProjectView

OfProject = Annotated[
    str | None,
    word_in_query("project", "Only what belongs to the project with this name or this id."),
]


async def project_id_of(request: ApiRequest, project: str | None) -> ProjectId | None:
    """The project whose rows a query asks for; None for all of them. Raises the refusal of an unknown one."""
    if project is None:
        return None
    found = await projects.find(
        request.world, request.principal.organization_id, project, reach=request.reach
    )
    if isinstance(found, Refused):
        raise refusal(found)
    return found.id


async def project_in_path(request: ApiRequest, text: str) -> Project:
    """The project that a path names. Raises a 404 when it is unknown or out of reach."""
    word = read_word("project", text)
    found = await projects.show(request.world, request.principal.organization_id, word, reach=request.reach)
    if isinstance(found, Refused):
        raise refusal(found)
    return found


class ProjectController(Controller):
    path = "/projects"
    tags = ("projects",)

    @get(
        "/",
        operation_id="listProjects",
        permission=Permission.PROJECTS_READ,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ProjectPage:
        """Your projects, oldest first; the first one is the default project."""
        found = await projects.page(
            request.world,
            request.principal.organization_id,
            after=paging.moment("projects", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        page, following = paging.cut(
            found, limit, lambda project: paging.after_moment("projects", project.created_at, project.id)
        )
        return ProjectPage(tuple(project_view(project) for project in page), following)

    @post(
        "/",
        operation_id="createProject",
        permission=Permission.PROJECTS_CREATE,
        scope=ScopeKind.ORGANIZATION,
        responses=made(ProjectView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[ProjectRequest]) -> Response[bytes]:
        """Create a project, to be named in requests for leases."""

        async def effect(connection: Connection) -> Made | Refused:
            project = await projects.create(
                connection, request.world, request.principal.organization_id, name=data.name
            )
            return project if isinstance(project, Refused) else Made(project_view(project))

        return await idempotency.once(request, effect, status=201)

    @get(
        "/{project:str}",
        operation_id="getProject",
        permission=Permission.PROJECTS_READ,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, project: FromPath[str]) -> ProjectView:
        """One project, by its id or its name."""
        return project_view(await project_in_path(request, project))

    @post(
        "/{project:str}/rename",
        operation_id="renameProject",
        permission=Permission.PROJECTS_RENAME,
        scope=ScopeKind.PROJECT,
        status_code=200,
        responses=made(ProjectView, 200),
    )
    async def rename(
        self, request: ApiRequest, project: FromPath[str], data: JSONBody[ProjectRequest]
    ) -> Response[bytes]:
        """Rename a project. Its id, its leases and their costs stay; usage and bills show the new name."""
        word = read_word("project", project)

        async def effect(connection: Connection) -> Made | Refused:
            renamed = await projects.rename(
                connection, request.principal.organization_id, word, name=data.name, reach=request.reach
            )
            return renamed if isinstance(renamed, Refused) else Made(project_view(renamed))

        return await idempotency.once(request, effect, status=200)
