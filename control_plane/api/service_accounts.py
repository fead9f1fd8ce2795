"""Service accounts: the machine identities of the caller's organization."""

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging, subjects
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.subjects import service_account_view
from control_plane.domain.ids import Prefix, ServiceAccountId
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.domain.subject import Subject, SubjectEvent, SubjectKind
from control_plane.services import service_accounts
from control_plane.services.idempotency import Connection
from control_plane.wire.subjects import ServiceAccountPage, ServiceAccountRequest, ServiceAccountView


class ServiceAccountController(Controller):
    path = "/service-accounts"
    tags = ("service accounts",)

    @get(
        "/",
        operation_id="listServiceAccounts",
        permission=Permission.SERVICE_ACCOUNTS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ServiceAccountPage:
        """The service accounts that are not removed, oldest first."""
        found = await service_accounts.page(
            request.world,
            request.principal.organization_id,
            after=paging.moment("serviceaccounts", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found,
            limit,
            lambda account: paging.after_moment("serviceaccounts", account.created_at, account.id),
        )
        return ServiceAccountPage(tuple(service_account_view(account) for account in page), following)

    @post(
        "/",
        operation_id="createServiceAccount",
        permission=Permission.SERVICE_ACCOUNTS_CREATE,
        scope=ScopeKind.ORGANIZATION,
        responses=made(ServiceAccountView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[ServiceAccountRequest]) -> Response[bytes]:
        """Create a service account, which has no role until somebody grants one."""

        async def effect(connection: Connection) -> Made | Refused:
            organization_id = request.principal.organization_id
            account = await service_accounts.create(
                connection, request.world, organization_id, name=data.name
            )
            return account if isinstance(account, Refused) else Made(service_account_view(account))

        return await idempotency.once(
            request, effect, status=201, collection="/v1/service-accounts", gives_access=True
        )

    @get(
        "/{service_account_id:str}",
        operation_id="getServiceAccount",
        permission=Permission.SERVICE_ACCOUNTS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, service_account_id: FromPath[str]) -> ServiceAccountView:
        """One service account that is not removed."""
        wanted = ServiceAccountId(read_id(Prefix.SERVICE_ACCOUNT, service_account_id))
        found = await service_accounts.get(request.world, request.principal.organization_id, wanted)
        if isinstance(found, Refused):
            raise refusal(found)
        return service_account_view(found)

    @post(
        "/{service_account_id:str}/suspend",
        operation_id="suspendServiceAccount",
        permission=Permission.SERVICE_ACCOUNTS_SUSPEND,
        scope=ScopeKind.ORGANIZATION,
        status_code=200,
        responses=made(ServiceAccountView, 200),
    )
    async def suspend(self, request: ApiRequest, service_account_id: FromPath[str]) -> Response[bytes]:
        """Refuse the credentials of a service account from now on, and end its event streams."""
        return await self._change(request, service_account_id, SubjectEvent.SUSPENDED)

    @post(
        "/{service_account_id:str}/resume",
        operation_id="resumeServiceAccount",
        permission=Permission.SERVICE_ACCOUNTS_SUSPEND,
        scope=ScopeKind.ORGANIZATION,
        status_code=200,
        responses=made(ServiceAccountView, 200),
    )
    async def resume(self, request: ApiRequest, service_account_id: FromPath[str]) -> Response[bytes]:
        """Accept the credentials of a suspended service account again."""
        return await self._change(request, service_account_id, SubjectEvent.RESUMED)

    @delete(
        "/{service_account_id:str}",
        operation_id="removeServiceAccount",
        permission=Permission.SERVICE_ACCOUNTS_REMOVE,
        scope=ScopeKind.ORGANIZATION,
        responses=refusable(409),
    )
    async def remove(self, request: ApiRequest, service_account_id: FromPath[str]) -> None:
        """Remove a service account for good: its keys are revoked and its roles end. What it created stays."""
        await subjects.remove(request, _subject(service_account_id))

    @staticmethod
    async def _change(request: ApiRequest, text: str, event: SubjectEvent) -> Response[bytes]:
        subject = _subject(text)

        async def show(connection: Connection) -> Made | Refused:
            found = await service_accounts.show(
                connection, request.principal.organization_id, ServiceAccountId(subject.id)
            )
            return found if isinstance(found, Refused) else Made(service_account_view(found))

        return await subjects.change(request, subject, event, show)


def _subject(text: str) -> Subject:
    return Subject(SubjectKind.SERVICE_ACCOUNT, ServiceAccountId(read_id(Prefix.SERVICE_ACCOUNT, text)))
