"""Changes of users and service accounts, which are the same for both: suspend, resume, remove."""

from collections.abc import Awaitable, Callable

from litestar import Response

from control_plane.api import idempotency
from control_plane.api.errors import refusal
from control_plane.api.idempotency import Made
from control_plane.api.requests import ApiRequest
from control_plane.domain.refusal import Refused
from control_plane.domain.subject import Subject, SubjectEvent
from control_plane.services import principals, subjects
from control_plane.services.idempotency import Connection

Show = Callable[[Connection], Awaitable[Made | Refused]]
"""Reads the subject after a change."""


async def change(request: ApiRequest, subject: Subject, event: SubjectEvent, show: Show) -> Response[bytes]:
    """Suspend or resume a subject; the answer is what `show` reads."""
    await idempotency.no_body(request)

    async def effect(connection: Connection) -> Made | Refused:
        refused = await subjects.change(connection, request.world, request.principal, subject, event)
        return await show(connection) if refused is None else refused

    answer = await idempotency.once(request, effect, status=200, gives_access=True)
    request.context.subject_changed(subject.id)
    return answer


async def remove(request: ApiRequest, subject: Subject) -> None:
    """Remove a subject for good."""
    async with principals.transaction(request.world, request.principal) as connection:
        await idempotency.hold(connection, request)
        refused = await subjects.change(
            connection, request.world, request.principal, subject, SubjectEvent.REMOVED
        )
        if refused is not None:
            raise refusal(refused)
    request.context.subject_changed(subject.id)
