"""An organization, its API keys and its SSH keys."""

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, views
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import ApiError, refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.requests import ApiRequest
from control_plane.api.schemas import (
    ApiKeyList,
    ApiKeyRequest,
    IssuedApiKey,
    OrganizationView,
    SshKeyList,
    SshKeyRequest,
    SshKeyView,
)
from control_plane.domain.ids import Prefix
from control_plane.domain.permission import Role
from control_plane.domain.refusal import Refused
from control_plane.services import api_keys, organizations, ssh_keys
from control_plane.services.idempotency import Connection


class OrganizationController(Controller):
    path = "/"
    tags = ["organization"]  # noqa: RUF012 - the framework's way

    @get("/organization", responses=PROBLEMS)
    async def show(self, request: ApiRequest) -> OrganizationView:
        return views.organization(await organizations.show(request.world, request.principal.organization_id))

    @get("/api-keys", responses=PROBLEMS)
    async def list_api_keys(self, request: ApiRequest) -> ApiKeyList:
        keys = await api_keys.every(request.world, request.principal.organization_id)
        return ApiKeyList(tuple(views.api_key(key) for key in keys))

    @post("/api-keys", responses=made(IssuedApiKey, 201))
    async def create_api_key(self, request: ApiRequest, data: JSONBody[ApiKeyRequest]) -> Response[bytes]:
        principal = request.principal
        if data.operator and not principal.operator:
            raise ApiError("operator_key_needed", "Only an operator's key makes another one.")

        async def effect(connection: Connection) -> Made:
            issued = await api_keys.issue(
                connection,
                request.world,
                principal.organization_id,
                name=data.name,
                role=Role.OPERATOR if data.operator else Role.CUSTOMER,
            )
            key = views.api_key(issued.key)
            return Made(IssuedApiKey(key, issued.secret), stored=IssuedApiKey(key, None))

        return await idempotency.once(request, effect, status=201)

    @delete("/api-keys/{key_id:str}", responses=PROBLEMS)
    async def revoke_api_key(self, request: ApiRequest, key_id: FromPath[str]) -> None:
        principal = request.principal
        refused = await api_keys.revoke(
            request.world,
            principal.organization_id,
            read_id(Prefix.API_KEY, key_id),
            using=principal.api_key_id,
        )
        if refused is not None:
            raise refusal(refused)

    @get("/ssh-keys", responses=PROBLEMS)
    async def list_ssh_keys(self, request: ApiRequest) -> SshKeyList:
        keys = await ssh_keys.every(request.world, request.principal.organization_id)
        return SshKeyList(tuple(views.ssh_key(key) for key in keys))

    @post("/ssh-keys", responses=made(SshKeyView, 201))
    async def create_ssh_key(self, request: ApiRequest, data: JSONBody[SshKeyRequest]) -> Response[bytes]:
        async def effect(connection: Connection) -> Made | Refused:
            key = await ssh_keys.add(
                connection,
                request.world,
                request.principal.organization_id,
                name=data.name,
                public_key=data.public_key,
            )
            return key if isinstance(key, Refused) else Made(views.ssh_key(key))

        return await idempotency.once(request, effect, status=201)

    @delete("/ssh-keys/{key_id:str}", responses=PROBLEMS)
    async def delete_ssh_key(self, request: ApiRequest, key_id: FromPath[str]) -> None:
        """Leases that were created with the key keep it until they end."""
        refused = await ssh_keys.delete(
            request.world, request.principal.organization_id, read_id(Prefix.SSH_KEY, key_id)
        )
        if refused is not None:
            raise refusal(refused)
