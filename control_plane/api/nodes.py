"""The nodes of node pools: what customers read of theirs, and operators of all.

Nodes come and go with the leases of their pool.
"""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_word
from control_plane.api.node_pools import OfCluster, read_node_pool_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.nodes import node_report_view, node_view
from control_plane.domain.node import NodeState
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import nodes
from control_plane.services.idempotency import Connection
from control_plane.services.nodes import NodeFilter
from control_plane.wire.common import NODE_POOL_ID_PATTERN
from control_plane.wire.nodes import NodePage, NodeReportPage, NodeReportView, NodeView

NodeStates = Annotated[
    list[NodeState] | None,
    QueryParameter(name="state", max_items=4, description="Only nodes in these states; may be repeated."),
]
OfNodePool = Annotated[
    str | None,
    QueryParameter(
        name="node_pool",
        pattern=NODE_POOL_ID_PATTERN,
        max_length=35,
        description="Only nodes of the node pool with this id.",
    ),
]


class NodeController(Controller):
    path = "/"
    tags = ("node pools",)

    @get(
        "/nodes",
        operation_id="listNodes",
        permission=Permission.NODE_POOLS_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        states: NodeStates = None,
        cluster: OfCluster = None,
        node_pool: OfNodePool = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> NodePage:
        """The nodes of your node pools, newest first."""
        pool_id = None if node_pool is None else read_node_pool_id(node_pool)
        found = await nodes.page(
            request.world,
            request.principal.organization_id,
            NodeFilter(states, cluster, pool_id),
            before=paging.moment("nodes", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("nodes", row.created_at, row.id)
        )
        now = request.world.now()
        return NodePage(tuple(node_view(row, now) for row in page), following)

    @get(
        "/nodes/{node:str}",
        operation_id="getNode",
        permission=Permission.NODE_POOLS_READ,
        scope=ScopeKind.ENVIRONMENT,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, node: FromPath[str]) -> NodeView:
        """One node, by its id or its name, with the steps that it has taken."""
        found = await nodes.show(
            request.world, request.principal.organization_id, read_word("node", node), reach=request.reach
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return node_view(found, request.world.now())

    @get(
        "/operator/nodes",
        operation_id="listAllNodes",
        permission=Permission.NODES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index_of_all(
        self,
        request: ApiRequest,
        *,
        states: NodeStates = None,
        cluster: OfCluster = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> NodeReportPage:
        """The nodes of everybody, newest first, with the evidence of their steps."""
        found = await nodes.reports(
            request.world,
            request.principal.organization_id,
            NodeFilter(states, cluster),
            before=paging.moment("all_nodes", cursor),
            limit=limit + 1,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found,
            limit,
            lambda row: paging.after_moment("all_nodes", row.overview.created_at, row.overview.id),
        )
        now = request.world.now()
        return NodeReportPage(tuple(node_report_view(row, now) for row in page), following)

    @get(
        "/operator/nodes/{node:str}",
        operation_id="getAnyNode",
        permission=Permission.NODES_READ_ALL,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show_any(self, request: ApiRequest, node: FromPath[str]) -> NodeReportView:
        """One node of anybody's, by its id or its name, with the evidence of its steps."""
        found = await nodes.report(request.world, read_word("node", node))
        if isinstance(found, Refused):
            raise refusal(found)
        return node_report_view(found, request.world.now())

    @post(
        "/operator/nodes/{node:str}/key-rotations",
        operation_id="rotateNodeKey",
        permission=Permission.NODES_ROTATE_KEYS,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(NodeReportView, 202),
    )
    async def rotate_key(self, request: ApiRequest, node: FromPath[str]) -> Response[bytes]:
        """Change the WireGuard key of a node at once, because it may have leaked.

        It begins within seconds, and its tunnels pause for some seconds. While it is under way, another request changes
        nothing.
        """
        await idempotency.no_body(request)
        word = read_word("node", node)

        async def effect(connection: Connection) -> Made | Refused:
            found = await nodes.rotate_key(
                connection,
                request.world,
                word,
                actor=request.actor,
                platform=request.principal.organization_id,
            )
            if isinstance(found, Refused):
                return found
            return Made(node_report_view(found, request.world.now()))

        return await idempotency.once(request, effect, status=202, collection="/v1/operator/nodes")
