"""Sessions: people who are signed in on a terminal."""

from typing import Annotated

from control_plane.wire.common import NextCursor, Timestamp, View
from control_plane.wire.vocabulary import SessionIdText, UserIdText, one_of

SessionEndWord = Annotated[
    str,
    one_of(
        "SessionEnd",
        "Why a session ended.",
        signed_out="The person signed out.",
        revoked="Somebody ended it by its id.",
        reused="A refresh token was used that had been replaced, so one of its two users stole it.",
        user_ended="The user was suspended or removed.",
        organization_closed="The organization was closed.",
    ),
]


class SessionView(View):
    """A sign-in of a person on one terminal."""

    id: SessionIdText
    """The id of the session."""
    user: UserIdText
    """Who is signed in."""
    client: str
    """What the terminal calls itself."""
    address: str
    """The address from which it was signed in."""
    created_at: Timestamp
    """When it began."""
    last_used_at: Timestamp
    """When it got an access token last."""
    expires_at: Timestamp
    """When the person has to sign in again."""
    ended_at: Timestamp | None
    """When it was ended; null while it was not."""
    ended_why: SessionEndWord | None
    """Why it was ended; null while it was not."""


class SessionList(View):
    """A page of sessions."""

    items: tuple[SessionView, ...]
    """The sessions, oldest first."""
    next_cursor: NextCursor | None = None
