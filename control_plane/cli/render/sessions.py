"""Sessions on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.names import Names
from control_plane.cli.render.layout import table
from control_plane.cli.words import coarse, short_id
from control_plane.wire.sessions import SessionView


def session_table(sessions: Sequence[SessionView], names: Names, now: datetime) -> RenderableType:
    if not sessions:
        return Text("No sessions; sign in with: splitplane login")
    ids = [session.id for session in sessions]
    rows = [
        (
            short_id(session.id, ids),
            names.subject(session.user) or session.user,
            session.client,
            session.address,
            coarse(now - session.last_used_at),
            (session.ended_why or "").replace("_", " "),
        )
        for session in sessions
    ]
    return table(
        ("SESSION", "USER", "CLIENT", "ADDRESS", "USED", "ENDED"),
        rows,
        right=("USED",),
        whole=("SESSION",),
        varying=("ENDED",),
    )
