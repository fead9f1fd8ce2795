"""API keys of the caller's organization."""

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.requests import ApiRequest, require
from control_plane.api.views.api_keys import api_key_view
from control_plane.domain.ids import Prefix
from control_plane.domain.permission import Permission, Role
from control_plane.services import api_keys
from control_plane.services.idempotency import Connection
from control_plane.wire.api_keys import ApiKeyList, ApiKeyRequest, IssuedApiKey


class ApiKeyController(Controller):
    path = "/api-keys"
    tags = ["API keys"]  # noqa: RUF012 - the framework's way

    @get("/", permission=Permission.API_KEYS_READ, responses=PROBLEMS)
    async def index(self, request: ApiRequest) -> ApiKeyList:
        """All keys, revoked ones included, oldest first."""
        keys = await api_keys.every(request.world, request.principal.organization_id)
        return ApiKeyList(tuple(api_key_view(key) for key in keys))

    @post("/", permission=Permission.API_KEYS_CREATE, responses=made(IssuedApiKey, 201))
    async def create(self, request: ApiRequest, data: JSONBody[ApiKeyRequest]) -> Response[bytes]:
        """Create a key. Its secret is in this answer and nowhere else."""
        role = Role(data.role)
        if role is Role.OPERATOR:
            require(request.principal, Permission.API_KEYS_CREATE_OPERATOR)

        async def effect(connection: Connection) -> Made:
            issued = await api_keys.issue(
                connection, request.world, request.principal.organization_id, name=data.name, role=role
            )
            key = api_key_view(issued.key)
            return Made(IssuedApiKey(key, issued.secret), stored=IssuedApiKey(key, None))

        return await idempotency.once(request, effect, status=201)

    @delete("/{key_id:str}", permission=Permission.API_KEYS_REVOKE, responses=PROBLEMS)
    async def revoke(self, request: ApiRequest, key_id: FromPath[str]) -> None:
        """Revoke a key. A key cannot revoke itself."""
        principal = request.principal
        refused = await api_keys.revoke(
            request.world,
            principal.organization_id,
            read_id(Prefix.API_KEY, key_id),
            using=principal.api_key_id,
        )
        if refused is not None:
            raise refusal(refused)
