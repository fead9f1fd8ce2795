"""Orphans: machines at a provider that no open record claims."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.idempotency import Made
from control_plane.api.paging import Limit, LongCursor
from control_plane.api.requests import ApiRequest
from control_plane.api.views.orphans import orphan_termination_view, orphan_view
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import orphans
from control_plane.services.idempotency import Connection
from control_plane.services.orphans import Place
from control_plane.wire.orphans import OrphanList, OrphanTerminationList, OrphanTerminationRequest

Gone = Annotated[
    bool, QueryParameter(description="Also those that are no longer listed, for 30 days after they went.")
]


class OrphanController(Controller):
    path = "/operator"
    tags = ("orphans",)

    @get(
        "/orphans",
        operation_id="listOrphans",
        permission=Permission.ORPHANS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        gone: Gone = False,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: LongCursor = None,
    ) -> OrphanList:
        """Machines with our launch keys that no open record claims, as the last lists showed them."""
        after = paging.place("orphans", cursor, Place)
        found = await orphans.page(
            request.world, request.principal.organization_id, gone=gone, after=after, limit=limit + 1
        )
        page, following = paging.cut(found, limit, lambda row: paging.after_place("orphans", row.place))
        now = request.world.now()
        return OrphanList(tuple(orphan_view(row, now) for row in page), following)

    @post(
        "/orphan-terminations",
        operation_id="terminateOrphans",
        permission=Permission.ORPHANS_TERMINATE,
        scope=ScopeKind.PLATFORM,
        responses=made(OrphanTerminationList, 201),
    )
    async def terminate(
        self, request: ApiRequest, data: JSONBody[OrphanTerminationRequest]
    ) -> Response[bytes]:
        """Decide that orphans of an account are terminated, whatever holds them back."""

        async def effect(connection: Connection) -> Made | Refused:
            decisions = await orphans.terminate(
                connection,
                request.world,
                AccountName(data.account),
                [ProviderRef(ref) for ref in data.provider_refs],
                why=data.why,
                actor=request.actor,
            )
            if isinstance(decisions, Refused):
                return decisions
            return Made(OrphanTerminationList(tuple(map(orphan_termination_view, decisions))))

        return await idempotency.once(request, effect, status=201)
