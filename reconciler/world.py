"""What every loop may touch: rows, the clock, new ids. A wing that reaches further has a world of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db.engine import Database
from control_plane.domain import actor
from control_plane.domain.actor import Actor


@dataclass(frozen=True, kw_only=True)
class World:
    """Enough for loops that work on rows alone: money, housekeeping. Tests bring a virtual clock."""

    db: Database
    now: Callable[[], datetime]
    new_id: Callable[[], UUID]
    replica: str = "one"
    """Names this process in reports."""

    def actor(self, loop: str) -> Actor:
        """How the journal names a loop."""
        return actor.loop(loop)
