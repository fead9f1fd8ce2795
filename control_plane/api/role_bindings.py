"""Role bindings: who has which role where in the caller's organization."""

from typing import Annotated

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import ApiError, refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.roles import role_binding_view
from control_plane.domain.ids import Prefix
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.role import Role
from control_plane.domain.scope import AT_ANY_SCOPE, ScopeKind
from control_plane.domain.subject import Subject
from control_plane.services import principals, role_bindings
from control_plane.services.idempotency import Connection
from control_plane.services.role_bindings import WantedScope
from control_plane.services.subjects import read_subject
from control_plane.wire.problems import FieldError
from control_plane.wire.roles import SUBJECT_PATTERN, RoleBindingPage, RoleBindingRequest, RoleBindingView

OfSubject = Annotated[
    str | None,
    QueryParameter(
        name="subject",
        pattern=SUBJECT_PATTERN,
        max_length=64,
        description="Only the roles of this user or service account, by its id.",
    ),
]


class RoleBindingController(Controller):
    path = "/role-bindings"
    tags = ("roles",)

    @get(
        "/",
        operation_id="listRoleBindings",
        permission=Permission.ROLE_BINDINGS_READ,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def index(
        self,
        request: ApiRequest,
        subject: OfSubject = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> RoleBindingPage:
        """The roles that are bound where you may see them, oldest first."""
        found = await role_bindings.page(
            request.world,
            request.principal.organization_id,
            reach=request.reach,
            of=None if subject is None else _of(subject, "invalid_parameter"),
            after=paging.moment("roles", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda binding: paging.after_moment("roles", binding.created_at, binding.id)
        )
        return RoleBindingPage(tuple(role_binding_view(binding) for binding in page), following)

    @post(
        "/",
        operation_id="createRoleBinding",
        permission=Permission.ROLE_BINDINGS_CREATE,
        scope=AT_ANY_SCOPE,
        responses=made(RoleBindingView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[RoleBindingRequest]) -> Response[bytes]:
        """Grant a role to somebody else, with no more permissions than you have there. It counts at once."""
        subject, role = _of(data.subject), Role(data.role)
        wanted = WantedScope(ScopeKind(data.scope.kind), data.scope.id)

        async def effect(connection: Connection) -> Made | Refused:
            binding = await role_bindings.create(
                connection, request.world, request.principal, subject, role=role, wanted=wanted
            )
            return binding if isinstance(binding, Refused) else Made(role_binding_view(binding))

        answer = await idempotency.once(request, effect, status=201, gives_access=True)
        request.context.subject_changed(subject.id)
        return answer

    @delete(
        "/{role_binding_id:str}",
        operation_id="deleteRoleBinding",
        permission=Permission.ROLE_BINDINGS_DELETE,
        scope=AT_ANY_SCOPE,
        responses=refusable(409),
    )
    async def remove(self, request: ApiRequest, role_binding_id: FromPath[str]) -> None:
        """End a role, which counts at once and ends event streams that lose their reach."""
        wanted = read_id(Prefix.ROLE_BINDING, role_binding_id)
        async with principals.transaction(request.world, request.principal) as connection:
            await idempotency.hold(connection, request)
            found = await role_bindings.delete(connection, request.principal, wanted, now=request.world.now())
            if isinstance(found, Refused):
                raise refusal(found)
        request.context.subject_changed(found.subject.id)


def _of(text: str, code: str = RefusalCode.SUBJECT_UNKNOWN) -> Subject:
    found = read_subject(text)
    if found is None:
        why = "must be the id of a user or a service account"
        raise ApiError(code, f"`subject` {why}.", errors=[FieldError("subject", why)])
    return found
