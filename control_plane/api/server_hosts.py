"""Hosts of the operator's that the servers of clusters run on."""

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.clusters import server_host_view
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import server_hosts
from control_plane.services.idempotency import Connection
from control_plane.wire.server_hosts import ServerHostPage, ServerHostRequest, ServerHostView


class ServerHostController(Controller):
    path = "/operator/server-hosts"
    tags = ("clusters",)

    @get(
        "/",
        operation_id="listServerHosts",
        permission=Permission.SERVER_HOSTS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ServerHostPage:
        """The hosts, in order of name, with the clusters whose servers run there."""
        found = await server_hosts.every(request.world, request.principal.organization_id)
        page, following = paging.window(
            "server-hosts", found, lambda host: host.name, limit=limit, cursor=cursor
        )
        return ServerHostPage(tuple(map(server_host_view, page)), following)

    @post(
        "/",
        operation_id="addServerHost",
        permission=Permission.SERVER_HOSTS_MANAGE,
        scope=ScopeKind.PLATFORM,
        responses=made(ServerHostView, 201),
    )
    async def add(self, request: ApiRequest, data: JSONBody[ServerHostRequest]) -> Response[bytes]:
        """Add a host. Nothing is installed there before a cluster takes it."""

        async def effect(connection: Connection) -> Made | Refused:
            host = await server_hosts.add(
                connection,
                request.world,
                name=data.name,
                region=data.region,
                address=data.address,
                ssh_port=data.ssh_port,
                host_key=data.host_key,
                outside=data.outside,
            )
            return host if isinstance(host, Refused) else Made(server_host_view(host))

        return await idempotency.once(request, effect, status=201)

    @delete(
        "/{host:str}",
        operation_id="removeServerHost",
        permission=Permission.SERVER_HOSTS_MANAGE,
        scope=ScopeKind.PLATFORM,
        responses=refusable(409, 422),
    )
    async def remove(self, request: ApiRequest, host: FromPath[str]) -> None:
        """Forget a host on which no server of a cluster runs."""
        refused = await server_hosts.remove(request.world, request.principal.organization_id, host)
        if refused is not None:
            raise refusal(refused)
