"""What operators ask for concerning provider accounts. The reconciler does it; an answer here is 202."""

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.accounts import OfAccount
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.account_requests import account_request_view
from control_plane.domain.account_request import AccountVerb
from control_plane.domain.ids import AccountName
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.domain.secret import Sealed
from control_plane.services import account_requests
from control_plane.services.idempotency import Connection
from control_plane.wire.account_requests import (
    AccountChangeRequest,
    AccountCredentialsRequest,
    AccountRequestPage,
    AccountRequestView,
)

COLLECTION = "/v1/operator/provider-account-requests"


class AccountRequestController(Controller):
    path = "/operator"
    tags = ("provider accounts",)

    @post(
        "/provider-accounts",
        operation_id="addProviderAccount",
        permission=Permission.PROVIDER_ACCOUNTS_MANAGE,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(AccountRequestView, 202),
    )
    async def add(self, request: ApiRequest, data: JSONBody[AccountCredentialsRequest]) -> Response[bytes]:
        """Add a provider account. It is used as soon as the provider accepts its credentials."""
        return await _with_credentials(request, data, AccountVerb.ADD)

    @post(
        "/provider-accounts/rotate",
        operation_id="rotateProviderAccount",
        permission=Permission.PROVIDER_ACCOUNTS_MANAGE,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(AccountRequestView, 202),
    )
    async def rotate(self, request: ApiRequest, data: JSONBody[AccountCredentialsRequest]) -> Response[bytes]:
        """Give an account new credentials. The old ones stay in force until the provider accepts the new ones."""
        return await _with_credentials(request, data, AccountVerb.ROTATE)

    @post(
        "/provider-account-requests",
        operation_id="changeProviderAccount",
        permission=Permission.PROVIDER_ACCOUNTS_MANAGE,
        scope=ScopeKind.PLATFORM,
        status_code=202,
        responses=made(AccountRequestView, 202),
    )
    async def change(self, request: ApiRequest, data: JSONBody[AccountChangeRequest]) -> Response[bytes]:
        """Test, drain, resume, arm, disarm or remove a provider account."""
        return await _ask(request, AccountName(data.account), AccountVerb(data.verb), why=data.why)

    @get(
        "/provider-account-requests",
        operation_id="listProviderAccountRequests",
        permission=Permission.PROVIDER_ACCOUNTS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        account: OfAccount = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> AccountRequestPage:
        """What was asked for concerning provider accounts, newest first, and what came of it."""
        found = await account_requests.page(
            request.world,
            request.principal.organization_id,
            account=None if account is None else AccountName(account),
            before=paging.moment("account requests", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("account requests", row.asked_at, row.id)
        )
        return AccountRequestPage(tuple(map(account_request_view, page)), following)

    @get(
        "/provider-account-requests/{request_id:str}",
        operation_id="getProviderAccountRequest",
        permission=Permission.PROVIDER_ACCOUNTS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, request_id: FromPath[str]) -> AccountRequestView:
        """One request concerning a provider account, and what came of it."""
        found = await account_requests.get(request.world, request.principal.organization_id, request_id)
        if isinstance(found, Refused):
            raise refusal(found)
        return account_request_view(found)


async def _with_credentials(
    request: ApiRequest, data: AccountCredentialsRequest, verb: AccountVerb
) -> Response[bytes]:
    sealed = await account_requests.seal_settings(
        request.world, request.principal.organization_id, data.settings
    )
    if isinstance(sealed, Refused):
        raise refusal(sealed)
    return await _ask(request, AccountName(data.account), verb, sealed=sealed)


async def _ask(
    request: ApiRequest,
    account: AccountName,
    verb: AccountVerb,
    *,
    sealed: Sealed | None = None,
    why: str | None = None,
) -> Response[bytes]:
    async def effect(connection: Connection) -> Made | Refused:
        made = await account_requests.ask(
            connection, request.world, account, verb, sealed=sealed, why=why, actor=request.actor
        )
        return Made(account_request_view(made))

    return await idempotency.once(request, effect, status=202, collection=COLLECTION)
