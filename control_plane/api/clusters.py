"""Kubernetes clusters: operators create and delete them, and everybody sees those that they may use."""

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_organization_id, read_word
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.clusters import cluster_view
from control_plane.domain.cluster import Cluster
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import AT_ANY_SCOPE, ScopeKind
from control_plane.services import clusters
from control_plane.services.idempotency import Connection
from control_plane.wire.clusters import ClusterPage, ClusterRequest, ClusterView


class ClusterController(Controller):
    path = "/"
    tags = ("clusters",)

    @get(
        "/clusters",
        operation_id="listClusters",
        permission=Permission.CLUSTERS_READ,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ClusterPage:
        """The clusters that your organization may use, oldest first: shared ones, and those dedicated to it.

        Operators see all of them.
        """
        after = paging.moment("clusters", cursor)
        found = await clusters.page(
            request.world, request.principal.organization_id, after=after, limit=limit + 1
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("clusters", row.created_at, row.id)
        )
        return ClusterPage(tuple(_view(request, row) for row in page), following)

    @get(
        "/clusters/{cluster:str}",
        operation_id="getCluster",
        permission=Permission.CLUSTERS_READ,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, cluster: FromPath[str]) -> ClusterView:
        """One cluster, by its id or its name."""
        found = await clusters.show(
            request.world, request.principal.organization_id, read_word("cluster", cluster)
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return _view(request, found)

    @post(
        "/operator/clusters",
        operation_id="createCluster",
        permission=Permission.CLUSTERS_MANAGE,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(ClusterView, 202),
    )
    async def create(self, request: ApiRequest, data: JSONBody[ClusterRequest]) -> Response[bytes]:
        """Create a cluster on a free server host, for everybody or for one organization."""
        named = data.organization_id
        dedicated_to = None if named is None else read_organization_id(named)

        async def effect(connection: Connection) -> Made | Refused:
            found = await clusters.create(
                connection,
                request.world,
                name=data.name,
                region=data.region,
                dedicated_to=dedicated_to,
                platform=request.principal.organization_id,
            )
            return found if isinstance(found, Refused) else Made(_view(request, found))

        return await idempotency.once(request, effect, status=202, collection="/v1/clusters")

    @post(
        "/operator/clusters/{cluster:str}/deletion",
        operation_id="deleteCluster",
        permission=Permission.CLUSTERS_MANAGE,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(ClusterView, 202),
    )
    async def remove(self, request: ApiRequest, cluster: FromPath[str]) -> Response[bytes]:
        """Delete a cluster: its nodes leave, and then its server is dismantled. Repeating it changes nothing."""
        await idempotency.no_body(request)
        word = read_word("cluster", cluster)

        async def effect(connection: Connection) -> Made | Refused:
            found = await clusters.delete(
                connection, request.world, word, platform=request.principal.organization_id
            )
            return found if isinstance(found, Refused) else Made(_view(request, found))

        return await idempotency.once(request, effect, status=202, collection="/v1/clusters")

    @post(
        "/operator/clusters/{cluster:str}/key-rotations",
        operation_id="rotateServerKey",
        permission=Permission.NODES_ROTATE_KEYS,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(ClusterView, 202),
    )
    async def rotate_key(self, request: ApiRequest, cluster: FromPath[str]) -> Response[bytes]:
        """Change the WireGuard key of a cluster's server at once, because it may have leaked.

        It begins within seconds, and all tunnels with the server pause for some seconds. While it is under way, another
        request changes nothing.
        """
        await idempotency.no_body(request)
        word = read_word("cluster", cluster)

        async def effect(connection: Connection) -> Made | Refused:
            found = await clusters.rotate_key(
                connection, request.world, word, platform=request.principal.organization_id
            )
            return found if isinstance(found, Refused) else Made(_view(request, found))

        return await idempotency.once(request, effect, status=202, collection="/v1/clusters")


def _view(request: ApiRequest, cluster: Cluster) -> ClusterView:
    return cluster_view(cluster, for_operators=Permission.SERVER_HOSTS_READ in request.principal.where)
