"""API keys: one's own, and with more permissions those of others in the organization."""

from datetime import timedelta

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import ApiError, refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.api_keys import api_key_view, issued_key_view
from control_plane.domain.ids import ApiKeyId, Prefix
from control_plane.domain.permission import NARROWEST, Permission
from control_plane.domain.refusal import RefusalCode, Refused, choose
from control_plane.domain.scope import AT_ANY_SCOPE
from control_plane.domain.subject import Subject
from control_plane.services import api_keys
from control_plane.services.api_keys import IssuedKey, WantedKey
from control_plane.services.idempotency import Connection
from control_plane.services.subjects import read_subject
from control_plane.wire.api_keys import ApiKeyList, ApiKeyRequest, IssuedApiKey, RotationRequest


def made_key(issued: IssuedKey | Refused) -> Made | Refused:
    if isinstance(issued, Refused):
        return issued
    view = issued_key_view(issued)
    return Made(view, stored=IssuedApiKey(view.key, None))


class ApiKeyController(Controller):
    path = "/api-keys"
    tags = ("API keys",)

    @get(
        "/",
        operation_id="listApiKeys",
        permission=Permission.API_KEYS_READ,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> ApiKeyList:
        """Your keys, those that have ended too, oldest first. With `api_keys.read_all` those of the organization."""
        found = await api_keys.page(
            request.world,
            request.principal,
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
        scope=AT_ANY_SCOPE,
        responses=made(IssuedApiKey, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[ApiKeyRequest]) -> Response[bytes]:
        """Create a key, which can do no more than the one that asks. Its secret is in this answer and nowhere else.

        A key for somebody else needs `api_keys.manage`.
        """
        _check_scopes(data.scopes)
        wanted = WantedKey(data.name, data.scopes, data.projects, data.expires_at)

        async def effect(connection: Connection) -> Made | Refused:
            principal = request.principal
            subject = principal.subject if data.subject is None else _subject(data.subject)
            return made_key(await api_keys.create(connection, request.world, principal, subject, wanted))

        return await idempotency.once(request, effect, status=201, gives_access=True)

    @post(
        "/{key_id:str}/rotations",
        operation_id="rotateApiKey",
        permission=Permission.API_KEYS_CREATE,
        scope=AT_ANY_SCOPE,
        responses=made(IssuedApiKey, 201),
    )
    async def rotate(
        self, request: ApiRequest, key_id: FromPath[str], data: JSONBody[RotationRequest]
    ) -> Response[bytes]:
        """Replace a key by a new one with the same owner, limits and end. The old one ends after the overlap."""
        old = ApiKeyId(read_id(Prefix.API_KEY, key_id))
        overlap = timedelta(hours=data.overlap_hours)

        async def effect(connection: Connection) -> Made | Refused:
            return made_key(
                await api_keys.rotate(connection, request.world, request.principal, old, overlap=overlap)
            )

        answer = await idempotency.once(request, effect, status=201, gives_access=True)
        request.context.key_changed(old)
        return answer

    @delete(
        "/{key_id:str}",
        operation_id="revokeApiKey",
        permission=Permission.API_KEYS_REVOKE,
        scope=AT_ANY_SCOPE,
        responses=refusable(409),
    )
    async def revoke(self, request: ApiRequest, key_id: FromPath[str]) -> None:
        """Revoke a key, which takes effect at once and ends its event streams. A key cannot revoke itself."""
        wanted = ApiKeyId(read_id(Prefix.API_KEY, key_id))
        refused = await api_keys.revoke(request.world, request.principal, wanted)
        if refused is not None:
            raise refusal(refused)
        request.context.key_changed(wanted)


def _subject(text: str) -> Subject:
    """The subject of a body, whose pattern the wire has checked."""
    found = read_subject(text)
    if found is None:  # pragma: no cover - the pattern allows nothing else
        raise ApiError("invalid_request", "`subject` must be the id of a user or a service account.")
    return found


def _check_scopes(scopes: tuple[str, ...] | None) -> None:
    unknown = sorted(set(scopes or ()) - {permission.value for permission in NARROWEST})
    if unknown:
        known = (permission.value for permission in NARROWEST)
        why = f"There is no permission {unknown[0]!r}; {choose(unknown[0], known)}."
        raise refusal(Refused(RefusalCode.PERMISSION_UNKNOWN, why))
