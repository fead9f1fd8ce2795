"""Users: the people of the caller's organization."""

from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath, JSONBody

from control_plane.api import idempotency, paging, subjects
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.subjects import user_view
from control_plane.domain.ids import Prefix, UserId
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.domain.subject import Subject, SubjectEvent, SubjectKind
from control_plane.services import users
from control_plane.services.idempotency import Connection
from control_plane.wire.subjects import UserPage, UserRequest, UserView


class UserController(Controller):
    path = "/users"
    tags = ("users",)

    @get(
        "/",
        operation_id="listUsers",
        permission=Permission.USERS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> UserPage:
        """The users that are not removed, oldest first."""
        found = await users.page(
            request.world,
            request.principal.organization_id,
            after=paging.moment("users", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda user: paging.after_moment("users", user.created_at, user.id)
        )
        return UserPage(tuple(user_view(user) for user in page), following)

    @post(
        "/",
        operation_id="inviteUser",
        permission=Permission.USERS_INVITE,
        scope=ScopeKind.ORGANIZATION,
        responses=made(UserView, 201),
    )
    async def create(self, request: ApiRequest, data: JSONBody[UserRequest]) -> Response[bytes]:
        """Invite a person, who has no role until somebody grants one."""

        async def effect(connection: Connection) -> Made | Refused:
            organization_id = request.principal.organization_id
            user = await users.invite(
                connection, request.world, organization_id, email=data.email, name=data.name
            )
            return user if isinstance(user, Refused) else Made(user_view(user))

        return await idempotency.once(request, effect, status=201, collection="/v1/users", gives_access=True)

    @get(
        "/{user_id:str}",
        operation_id="getUser",
        permission=Permission.USERS_READ,
        scope=ScopeKind.ORGANIZATION,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, user_id: FromPath[str]) -> UserView:
        """One user that is not removed."""
        wanted = UserId(read_id(Prefix.USER, user_id))
        found = await users.get(request.world, request.principal.organization_id, wanted)
        if isinstance(found, Refused):
            raise refusal(found)
        return user_view(found)

    @post(
        "/{user_id:str}/suspend",
        operation_id="suspendUser",
        permission=Permission.USERS_SUSPEND,
        scope=ScopeKind.ORGANIZATION,
        status_code=200,
        responses=made(UserView, 200),
    )
    async def suspend(self, request: ApiRequest, user_id: FromPath[str]) -> Response[bytes]:
        """Refuse the credentials of a user from now on, and end its event streams."""
        return await self._change(request, user_id, SubjectEvent.SUSPENDED)

    @post(
        "/{user_id:str}/resume",
        operation_id="resumeUser",
        permission=Permission.USERS_SUSPEND,
        scope=ScopeKind.ORGANIZATION,
        status_code=200,
        responses=made(UserView, 200),
    )
    async def resume(self, request: ApiRequest, user_id: FromPath[str]) -> Response[bytes]:
        """Accept the credentials of a suspended user again."""
        return await self._change(request, user_id, SubjectEvent.RESUMED)

    @delete(
        "/{user_id:str}",
        operation_id="removeUser",
        permission=Permission.USERS_REMOVE,
        scope=ScopeKind.ORGANIZATION,
        responses=refusable(409),
    )
    async def remove(self, request: ApiRequest, user_id: FromPath[str]) -> None:
        """Remove a user for good: its keys are revoked and its roles end. What it created stays."""
        await subjects.remove(request, _subject(user_id))

    @staticmethod
    async def _change(request: ApiRequest, text: str, event: SubjectEvent) -> Response[bytes]:
        subject = _subject(text)

        async def show(connection: Connection) -> Made | Refused:
            found = await users.show(connection, request.principal.organization_id, UserId(subject.id))
            return found if isinstance(found, Refused) else Made(user_view(found))

        return await subjects.change(request, subject, event, show)


def _subject(text: str) -> Subject:
    return Subject(SubjectKind.USER, UserId(read_id(Prefix.USER, text)))
