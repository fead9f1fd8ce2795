"""Node pools: create, list, read, scale and delete them. Each of their nodes is a lease. Operators list everybody's."""

from typing import Annotated

from litestar import Controller, Response, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.catalogue import requested_by
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, word_in_query
from control_plane.api.paging import Cursor, Limit
from control_plane.api.projects import OfProject
from control_plane.api.requests import ApiRequest
from control_plane.api.views.node_pools import node_pool_report_view, node_pool_view
from control_plane.domain.ids import NodePoolId, Prefix
from control_plane.domain.node_marks import Taint, TaintEffect
from control_plane.domain.node_pool import NodePoolState
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import node_pools
from control_plane.services.idempotency import Connection
from control_plane.services.node_pools import Asker, PoolFilter, PoolOverview, PoolReport, WantedPool
from control_plane.wire.node_pools import (
    NodePoolChangeRequest,
    NodePoolPage,
    NodePoolReportPage,
    NodePoolRequest,
    NodePoolView,
)

PoolStates = Annotated[
    list[NodePoolState] | None,
    QueryParameter(
        name="state", max_items=4, description="Only node pools in these states; may be repeated."
    ),
]
OfCluster = Annotated[
    str | None,
    word_in_query("cluster", "Only what is in this cluster: its name or its id."),
]
WithName = Annotated[str | None, word_in_query("name", "Only those of this name.")]


class NodePoolController(Controller):
    path = "/"
    tags = ("node pools",)

    @post(
        "/node-pools",
        operation_id="createNodePool",
        permission=Permission.NODE_POOLS_MANAGE,
        scope=ScopeKind.ENVIRONMENT,
        status_code=202,
        responses=made(NodePoolView, 202),
    )
    async def create(self, request: ApiRequest, data: JSONBody[NodePoolRequest]) -> Response[bytes]:
        """Create a node pool. 202: the leases of all its nodes are admitted; the nodes follow, all or none."""
        asker, wanted = _asker(request), _wanted(data)

        async def effect(connection: Connection) -> Made | Refused:
            return _made(await node_pools.create(connection, request.world, asker, wanted))

        return await idempotency.once(request, effect, status=202, collection="/v1/node-pools")

    @get(
        "/node-pools",
        operation_id="listNodePools",
        permission=Permission.NODE_POOLS_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        states: PoolStates = None,
        project: OfProject = None,
        cluster: OfCluster = None,
        name: WithName = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> NodePoolPage:
        """Your node pools, newest first."""
        found = await node_pools.page(
            request.world,
            request.principal.organization_id,
            PoolFilter(states, project, cluster, name),
            before=paging.moment("node_pools", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("node_pools", row.pool.created_at, row.pool.id)
        )
        return NodePoolPage(tuple(node_pool_view(row) for row in page), following)

    @get(
        "/node-pools/{node_pool_id:str}",
        operation_id="getNodePool",
        permission=Permission.NODE_POOLS_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, node_pool_id: FromPath[str]) -> NodePoolView:
        """One node pool, with how far the leases of its nodes are."""
        found = await node_pools.show(
            request.world,
            request.principal.organization_id,
            read_node_pool_id(node_pool_id),
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return node_pool_view(found)

    @patch(
        "/node-pools/{node_pool_id:str}",
        operation_id="scaleNodePool",
        permission=Permission.NODE_POOLS_MANAGE,
        scope=ScopeKind.ENVIRONMENT,
        responses=made(NodePoolView, 200),
    )
    async def scale(
        self, request: ApiRequest, node_pool_id: FromPath[str], data: JSONBody[NodePoolChangeRequest]
    ) -> Response[bytes]:
        """Scale a node pool."""
        asker, wanted = _asker(request), read_node_pool_id(node_pool_id)

        async def effect(connection: Connection) -> Made | Refused:
            return _made(await node_pools.scale(connection, request.world, asker, wanted, data.nodes))

        return await idempotency.once(request, effect, status=200)

    @post(
        "/node-pools/{node_pool_id:str}/deletion",
        operation_id="deleteNodePool",
        permission=Permission.NODE_POOLS_MANAGE,
        scope=ScopeKind.ENVIRONMENT,
        status_code=202,
        responses=made(NodePoolView, 202),
    )
    async def remove(self, request: ApiRequest, node_pool_id: FromPath[str]) -> Response[bytes]:
        """Delete a node pool. Billing stops now; its nodes leave the cluster. Repeating it changes nothing."""
        await idempotency.no_body(request)
        asker, wanted = _asker(request), read_node_pool_id(node_pool_id)

        async def effect(connection: Connection) -> Made | Refused:
            return _made(await node_pools.delete(connection, request.world, asker, wanted))

        return await idempotency.once(request, effect, status=202, collection="/v1/node-pools")

    @get(
        "/operator/node-pools",
        operation_id="listAllNodePools",
        permission=Permission.NODES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index_of_all(
        self,
        request: ApiRequest,
        *,
        states: PoolStates = None,
        cluster: OfCluster = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> NodePoolReportPage:
        """The node pools of everybody, newest first."""
        found = await node_pools.reports(
            request.world,
            request.principal.organization_id,
            PoolFilter(states, cluster=cluster),
            before=paging.moment("all_node_pools", cursor),
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, _after_report)
        return NodePoolReportPage(tuple(node_pool_report_view(row) for row in page), following)


def _after_report(report: PoolReport) -> str:
    pool = report.overview.pool
    return paging.after_moment("all_node_pools", pool.created_at, pool.id)


def read_node_pool_id(text: str) -> NodePoolId:
    return NodePoolId(read_id(Prefix.NODE_POOL, text))


def _asker(request: ApiRequest) -> Asker:
    return Asker(request.principal.organization_id, request.actor, request.reach)


def _made(found: PoolOverview | Refused) -> Made | Refused:
    return found if isinstance(found, Refused) else Made(node_pool_view(found))


def _wanted(data: NodePoolRequest) -> WantedPool:
    return WantedPool(
        data.cluster,
        data.name,
        requested_by(data),
        data.nodes,
        project=data.project,
        environment=data.environment,
        node_labels=data.node_labels,
        node_taints=tuple(Taint(each.key, each.value, TaintEffect(each.effect)) for each in data.node_taints),
        wait_timeout_seconds=data.wait_timeout_seconds,
    )
