"""API keys of the caller's organization."""

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest, require
from control_plane.api.views.api_keys import api_key_view
from control_plane.domain.ids import ApiKeyId, Prefix
from control_plane.domain.permission import Permission, Role
from control_plane.domain.refusal import Refused
from control_plane.services import api_keys
from control_plane.services.idempotency import Connection
from control_plane.wire.api_keys import ApiKeyList, ApiKeyRequest, IssuedApiKey


class ApiKeyController(Controller):
    path = "/api-keys"
    tags = ("API keys",)

    @get("/", operation_id="listApiKeys", permission=Permission.API_KEYS_READ, responses=PROBLEMS)
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ApiKeyList:
        """All keys, revoked ones included, oldest first."""
        found = await api_keys.page(
            request.world,
            request.principal.organization_id,
            after=paging.moment("apikeys", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda key: paging.after_moment("apikeys", key.created_at, key.id)
        )
        return ApiKeyList(tuple(api_key_view(key) for key in page), following)

    @post(
        "/",
        operation_id="createApiKey",
        permission=Permission.API_KEYS_CREATE,
        responses=made(IssuedApiKey, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[ApiKeyRequest]) -> Response[bytes]:
        """Create a key. Its secret is in this answer and nowhere else."""
        role = Role(data.role)
        if role is Role.OPERATOR:
            require(request.principal, Permission.API_KEYS_CREATE_OPERATOR)

        async def effect(connection: Connection) -> Made | Refused:
            issued = await api_keys.create(
                connection,
                request.world,
                request.principal.organization_id,
                request.principal.subject,
                name=data.name,
                role=role,
            )
            if isinstance(issued, Refused):
                return issued
            key = api_key_view(issued.key)
            return Made(IssuedApiKey(key, issued.secret), stored=IssuedApiKey(key, None))

        return await idempotency.once(request, effect, status=201, gives_access=True)

    @delete(
        "/{key_id:str}",
        operation_id="revokeApiKey",
        permission=Permission.API_KEYS_REVOKE,
        responses=refusable(409),
    )
    async def revoke(self, request: ApiRequest, key_id: FromPath[str]) -> None:
        """Revoke a key, which takes effect at once and ends its event streams. A key cannot revoke itself."""
        principal, wanted = request.principal, ApiKeyId(read_id(Prefix.API_KEY, key_id))
        role = await api_keys.role(request.world, principal.organization_id, wanted)
        if isinstance(role, Refused):
            raise refusal(role)
        if role is Role.OPERATOR:
            require(principal, Permission.API_KEYS_REVOKE_OPERATOR)
        refused = await api_keys.revoke(
            request.world, principal.organization_id, wanted, using=principal.api_key_id
        )
        if refused is not None:
            raise refusal(refused)
        request.context.key_revoked(wanted)
