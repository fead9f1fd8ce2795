"""Which members of an overlay are set up next: a member that does not answer holds up nobody who does.

Members that answered the last time are set up together, and before all others. Only when none of them is due, those
that failed are tried again, each after a delay that doubles. So a new key or a removed one waits for a dead member at
most as long as one try takes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.backoff import delay
from control_plane.domain.overlay import SERVER_NUMBER

RETRY_FIRST, RETRY_CEILING = timedelta(seconds=5), timedelta(minutes=2)
"""The ceiling lets a member be tried twice in the time that a removal waits for it (`node.CUT_OFF_MAX`)."""
MEMBERS_MAX = 64
"""How many members of one overlay are set up side by side."""


@dataclass(frozen=True, slots=True)
class Due:
    """A member that is not as the peer map wants it, or was not read for long."""

    number: int
    differs: bool
    """It lacks a key, holds one that was removed, or was never set up. Otherwise it is only read again."""
    tries: int
    """How often it failed since it was last set up."""
    tried_at: datetime | None
    """When it failed the last time; None when it did not."""

    def is_due(self, now: datetime) -> bool:
        if self.tries == 0 or self.tried_at is None:
            return True
        return now >= self.tried_at + delay(self.tries, first=RETRY_FIRST, ceiling=RETRY_CEILING)


def next_to_set_up(members: Iterable[Due], now: datetime) -> list[int]:
    """The numbers of those to set up now, the cluster's server first, because every node needs it."""
    due = [member for member in members if member.is_due(now)]
    answering = [member for member in due if member.tries == 0]
    chosen = sorted(
        answering or due,
        key=lambda member: (member.number != SERVER_NUMBER, not member.differs, member.tries),
    )
    return [member.number for member in chosen[:MEMBERS_MAX]]
