"""Private networks of the projects of the caller's organization."""

from litestar import Controller, Response, delete, get, post, put
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_word
from control_plane.api.paging import Cursor, Limit
from control_plane.api.projects import project_in_path
from control_plane.api.requests import ApiRequest
from control_plane.api.views.networks import member_view, network_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import networks, projects
from control_plane.services.idempotency import Connection
from control_plane.wire.networks import (
    NetworkLabelsRequest,
    NetworkMemberPage,
    NetworkPage,
    NetworkRequest,
    NetworkView,
)


class NetworkController(Controller):
    path = "/projects/{project:str}/networks"
    tags = ("networks",)

    @get(
        "/",
        operation_id="listNetworks",
        permission=Permission.NETWORKS_READ,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        project: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> NetworkPage:
        """The private networks of a project, oldest first; the first one is the default network."""
        after = paging.moment("networks", cursor)
        found = await networks.page(
            request.world, await project_in_path(request, project), after=after, limit=limit + 1
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("networks", row.created_at, row.id)
        )
        return NetworkPage(tuple(network_view(row) for row in page), following)

    @post(
        "/",
        operation_id="createNetwork",
        permission=Permission.NETWORKS_CREATE,
        scope=ScopeKind.PROJECT,
        responses=made(NetworkView, 201),
    )
    async def create(
        self, request: ApiRequest, project: FromPath[str], data: JSONBody[NetworkRequest]
    ) -> Response[bytes]:
        """Create a private network of a project, to be named in requests for leases."""
        word = read_word("project", project)

        async def effect(connection: Connection) -> Made | Refused:
            of = await projects.of_path(
                connection, request.principal.organization_id, word, reach=request.reach
            )
            if isinstance(of, Refused):
                return of
            network = await networks.create(connection, request.world, of, name=data.name, labels=data.labels)
            return network if isinstance(network, Refused) else Made(network_view(network))

        return await idempotency.once(request, effect, status=201)

    @get(
        "/{network:str}",
        operation_id="getNetwork",
        permission=Permission.NETWORKS_READ,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, project: FromPath[str], network: FromPath[str]) -> NetworkView:
        """One private network, by its id or its name."""
        word = read_word("network", network)
        found = await networks.show(request.world, await project_in_path(request, project), word)
        if isinstance(found, Refused):
            raise refusal(found)
        return network_view(found)

    @get(
        "/{network:str}/members",
        operation_id="listNetworkMembers",
        permission=Permission.NETWORKS_READ,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def members(
        self,
        request: ApiRequest,
        project: FromPath[str],
        network: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> NetworkMemberPage:
        """The machines in a network now, with their leases and addresses."""
        word, after = read_word("network", network), paging.number("members", cursor) or 0
        found = await networks.members(
            request.world, await project_in_path(request, project), word, after=after, limit=limit + 1
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found, limit, lambda row: paging.after_number("members", row.host_number)
        )
        return NetworkMemberPage(tuple(member_view(row) for row in page), following)

    @put(
        "/{network:str}/labels",
        operation_id="replaceNetworkLabels",
        permission=Permission.NETWORKS_LABEL,
        scope=ScopeKind.PROJECT,
        responses=refusable(408, 413, 415, 422),
    )
    async def label(
        self,
        request: ApiRequest,
        project: FromPath[str],
        network: FromPath[str],
        data: JSONBody[NetworkLabelsRequest],
    ) -> NetworkView:
        """Replace the labels of a network. Repeating it changes nothing."""
        word = read_word("network", network)
        found = await networks.label(
            request.world, await project_in_path(request, project), word, data.labels
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return network_view(found)

    @delete(
        "/{network:str}",
        operation_id="deleteNetwork",
        permission=Permission.NETWORKS_DELETE,
        scope=ScopeKind.PROJECT,
        responses=refusable(409, 422),
    )
    async def remove(self, request: ApiRequest, project: FromPath[str], network: FromPath[str]) -> None:
        """Delete a network that no lease uses. The default network of a project stays."""
        word = read_word("network", network)
        refused = await networks.delete(request.world, await project_in_path(request, project), word)
        if refused is not None:
            raise refusal(refused)
