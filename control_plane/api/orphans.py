"""Orphans: machines at a provider that no open record claims."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.accounts import OfAccount
from control_plane.api.documents import made, refusable
from control_plane.api.idempotency import Made
from control_plane.api.paging import Limit, LongCursor
from control_plane.api.requests import ApiRequest
from control_plane.api.views.orphans import orphan_decision_view, orphan_view
from control_plane.domain.ids import AccountName, ProviderRef
from control_plane.domain.orphan import Choice
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import orphans
from control_plane.services.idempotency import Connection
from control_plane.services.orphans import Place
from control_plane.wire.common import (
    PROVIDER_REF_LENGTH_MAX,
    PROVIDER_REF_PATTERN,
)
from control_plane.wire.orphans import OrphanDecisionList, OrphanDecisionRequest, OrphanList

Gone = Annotated[
    bool, QueryParameter(description="Also those that are no longer listed, for 30 days after they went.")
]

OfRef = Annotated[
    str | None,
    QueryParameter(
        pattern=PROVIDER_REF_PATTERN,
        max_length=PROVIDER_REF_LENGTH_MAX,
        description="Only the one that the provider lists under this id.",
    ),
]


class OrphanController(Controller):
    path = "/operator"
    tags = ("orphans",)

    @get(
        "/orphans",
        operation_id="listOrphans",
        permission=Permission.ORPHANS_READ,
        scope=ScopeKind.PLATFORM,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        account: OfAccount = None,
        provider_ref: OfRef = None,
        gone: Gone = False,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: LongCursor = None,
    ) -> OrphanList:
        """Machines with our launch keys that no open record claims, as the last lists showed them."""
        after = paging.place("orphans", cursor, Place)
        found = await orphans.page(
            request.world,
            request.principal.organization_id,
            gone=gone,
            after=after,
            limit=limit + 1,
            account=None if account is None else AccountName(account),
            ref=None if provider_ref is None else ProviderRef(provider_ref),
        )
        page, following = paging.cut(found, limit, lambda row: paging.after_place("orphans", row.place))
        now = request.world.now()
        return OrphanList(tuple(orphan_view(row, now) for row in page), following)

    @post(
        "/orphan-decisions",
        operation_id="decideOnOrphans",
        permission=Permission.ORPHANS_DECIDE,
        scope=ScopeKind.PLATFORM,
        responses=made(OrphanDecisionList, 201),
    )
    async def decide(self, request: ApiRequest, data: JSONBody[OrphanDecisionRequest]) -> Response[bytes]:
        """Decide that orphans of an account are terminated, left alone, or adopted by their records."""

        async def effect(connection: Connection) -> Made | Refused:
            decisions = await orphans.decide(
                connection,
                request.world,
                AccountName(data.account),
                [ProviderRef(ref) for ref in data.provider_refs],
                Choice(data.choice),
                why=data.why,
                actor=request.actor,
            )
            if isinstance(decisions, Refused):
                return decisions
            return Made(OrphanDecisionList(tuple(map(orphan_decision_view, decisions))))

        return await idempotency.once(request, effect, status=201)
