"""Sessions: where one is signed in, and with more permissions where others of the organization are."""

from litestar import Controller, delete, get
from litestar.params import FromPath

from control_plane.api import paging
from control_plane.api.documents import PROBLEMS
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.sessions import session_view
from control_plane.domain.ids import ApiKeyId, Prefix, SessionId
from control_plane.domain.permission import Permission
from control_plane.domain.scope import AT_ANY_SCOPE
from control_plane.services import sessions
from control_plane.wire.sessions import SessionList


class SessionController(Controller):
    path = "/sessions"
    tags = ("sessions",)

    @get(
        "/",
        operation_id="listSessions",
        permission=Permission.SESSIONS_READ,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def index(
        self, request: ApiRequest, limit: Limit = paging.LIMIT_DEFAULT, cursor: Cursor = None
    ) -> SessionList:
        """Your sessions, those that have ended too, oldest first. With `sessions.read_all` those of everybody in the
        organization.
        """
        found = await sessions.page(
            request.world,
            request.principal,
            after=paging.moment("sessions", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda session: paging.after_moment("sessions", session.created_at, session.id)
        )
        return SessionList(tuple(session_view(session) for session in page), following)

    @delete(
        "/{session_id:str}",
        operation_id="revokeSession",
        permission=Permission.SESSIONS_REVOKE,
        scope=AT_ANY_SCOPE,
        responses=PROBLEMS,
    )
    async def revoke(self, request: ApiRequest, session_id: FromPath[str]) -> None:
        """End a session, which takes effect at once. The sessions of others need `sessions.revoke_all`."""
        wanted = SessionId(read_id(Prefix.SESSION, session_id))
        refused = await sessions.revoke(request.world, request.principal, wanted)
        if refused is not None:
            raise refusal(refused)
        request.context.key_changed(ApiKeyId(wanted))
