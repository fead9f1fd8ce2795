"""SSH keys of the caller's organization."""

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.ssh_keys import ssh_key_view
from control_plane.domain.ids import Prefix
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import ssh_keys
from control_plane.services.idempotency import Connection
from control_plane.wire.ssh_keys import SshKeyList, SshKeyRequest, SshKeyView


class SshKeyController(Controller):
    path = "/ssh-keys"
    tags = ("SSH keys",)

    @get(
        "/",
        operation_id="listSshKeys",
        permission=Permission.SSH_KEYS_READ,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> SshKeyList:
        """All keys, oldest first."""
        keys = await ssh_keys.every(request.world, request.principal.organization_id, reach=request.reach)
        page, following = paging.window("sshkeys", keys, lambda key: key.id.hex, limit=limit, cursor=cursor)
        return SshKeyList(tuple(ssh_key_view(key) for key in page), following)

    @post(
        "/",
        operation_id="createSshKey",
        permission=Permission.SSH_KEYS_CREATE,
        scope=ScopeKind.PROJECT,
        responses=made(SshKeyView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[SshKeyRequest]) -> Response[bytes]:
        """Store a public key, to limit leases to it, or to have certificates signed for it by its id."""

        async def effect(connection: Connection) -> Made | Refused:
            key = await ssh_keys.add(
                connection,
                request.world,
                request.principal.organization_id,
                name=data.name,
                public_key=data.public_key,
                project=data.project,
                reach=request.reach,
            )
            return key if isinstance(key, Refused) else Made(ssh_key_view(key))

        return await idempotency.once(request, effect, status=201, gives_access=True)

    @delete(
        "/{key_id:str}",
        operation_id="deleteSshKey",
        permission=Permission.SSH_KEYS_DELETE,
        scope=ScopeKind.PROJECT,
        responses=PROBLEMS,
    )
    async def remove(self, request: ApiRequest, key_id: FromPath[str]) -> None:
        """Delete a key. Its SSH certificates are revoked, also at leases that are limited to it."""
        refused = await ssh_keys.delete(
            request.world,
            request.principal.organization_id,
            read_id(Prefix.SSH_KEY, key_id),
            reach=request.reach,
        )
        if refused is not None:
            raise refusal(refused)
