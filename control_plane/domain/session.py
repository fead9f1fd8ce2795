"""A session: a person's sign-in on one terminal, with refresh tokens that are replaced at each use."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum, auto

from control_plane.domain.ids import SessionId, UserId

LASTS = timedelta(days=30)
"""After so long a person signs in again."""
REPEATS = timedelta(seconds=30)
"""So long after its use a refresh token may be used again, while its successor is unused: its answer may be lost."""


class SessionEnd(StrEnum):
    SIGNED_OUT = "signed_out"
    REVOKED = "revoked"
    """Somebody ended it by its id."""
    REUSED = "reused"
    """A refresh token was used that had been replaced, so one of its two users stole it."""
    USER_ENDED = "user_ended"
    """The user was suspended or removed."""
    ORGANIZATION_CLOSED = "organization_closed"


@dataclass(frozen=True, slots=True)
class Session:
    id: SessionId
    user_id: UserId
    client: str
    """What the terminal calls itself."""
    address: str
    """Where the terminal was when the person signed in."""
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    ended_why: SessionEnd | None

    def is_open(self, now: datetime) -> bool:
        return self.ended_at is None and now < self.expires_at


class Use(StrEnum):
    """What a refresh token does that somebody presents."""

    EXCHANGE = auto()
    """It is exchanged for another one."""
    END = auto()
    """It was replaced before: the session ends (RFC 9700, section 4.14.2)."""


@dataclass(frozen=True, slots=True)
class Presented:
    """A refresh token of an open session that somebody presents."""

    replaced_at: datetime | None
    """When it was exchanged first."""
    successor_used: bool
    """Whether a token was used that it was exchanged for."""
    sibling_used: bool
    """Whether another token was used that was given for the same one as this."""


def use(token: Presented, now: datetime) -> Use:
    """A token may be exchanged again while nobody used what it was exchanged for: the answer may be lost.

    All that it was exchanged for stay good until one of them is used. Of two tries, the first may arrive last, at a
    process that stood still; so the one that was made last is not always the one that the client has.
    """
    if token.sibling_used:
        return Use.END
    if token.replaced_at is None:
        return Use.EXCHANGE
    lost = not token.successor_used and now < token.replaced_at + REPEATS
    return Use.EXCHANGE if lost else Use.END
