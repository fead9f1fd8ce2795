"""Sessions on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.sessions import Session
from control_plane.wire.sessions import SessionView


def session_view(session: Session) -> SessionView:
    return SessionView(
        id=on_wire(Prefix.SESSION, session.id),
        user=on_wire(Prefix.USER, session.user_id),
        client=session.client,
        address=session.address,
        created_at=session.created_at,
        last_used_at=session.last_used_at,
        expires_at=session.expires_at,
        ended_at=session.ended_at,
        ended_why=session.ended_why,
    )
