"""Provider accounts, and permits to terminate machines there."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.idempotency import Made
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.accounts import account_view, termination_permit_view
from control_plane.domain.ids import AccountName
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import accounts
from control_plane.services.accounts import MissingPermit
from control_plane.services.idempotency import Connection
from control_plane.wire.accounts import AccountList, TerminationPermitRequest, TerminationPermitView
from control_plane.wire.common import ACCOUNT_LENGTH_MAX, ACCOUNT_PATTERN

OfAccount = Annotated[
    str | None,
    QueryParameter(
        pattern=ACCOUNT_PATTERN,
        max_length=ACCOUNT_LENGTH_MAX,
        description="Only of this provider account, such as `lambda_cloud/research`.",
    ),
]


class AccountController(Controller):
    path = "/operator"
    tags = ("provider accounts",)

    @get(
        "/provider-accounts",
        operation_id="listProviderAccounts",
        permission=Permission.PROVIDER_ACCOUNTS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> AccountList:
        """Provider accounts: their last list, whether they are frozen or failing, and why."""
        found = await accounts.every(request.world, request.principal.organization_id)
        page, following = paging.window(
            "accounts", found, lambda overview: overview.account.name, limit=limit, cursor=cursor
        )
        now = request.world.now()
        return AccountList(tuple(account_view(overview, now) for overview in page), following)

    @post(
        "/termination-permits",
        operation_id="permitTerminations",
        permission=Permission.TERMINATIONS_PERMIT,
        scope=ScopeKind.PLATFORM,
        responses=made(TerminationPermitView, 201),
    )
    async def permit_terminations(
        self, request: ApiRequest, data: JSONBody[TerminationPermitRequest]
    ) -> Response[bytes]:
        """Permit for a while that all machines of an account that fail their GPU proof, or that its lists miss, are
        terminated.
        """

        async def effect(connection: Connection) -> Made | Refused:
            seen = data.missing
            permit = await accounts.permit_terminations(
                connection,
                request.world,
                AccountName(data.account),
                minutes=data.minutes,
                why=data.why,
                actor=request.actor,
                missing=None if seen is None else MissingPermit(seen.frozen_since, seen.machines),
            )
            return permit if isinstance(permit, Refused) else Made(termination_permit_view(permit))

        return await idempotency.once(request, effect, status=201)
