"""What every loop may use: the database, the clock and new ids. Wings that need more have a world of their own."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from control_plane.db.engine import Database
from control_plane.domain import actor
from control_plane.domain.actor import Actor
from control_plane.domain.funding import StopTimes
from control_plane.world import no_refusal
from tracing.tracer import NO_TRACER, Tracer


@dataclass(frozen=True, kw_only=True)
class World:
    """The world of loops that work on rows alone: money, housekeeping. Tests pass a virtual clock."""

    db: Database
    now: Callable[[], datetime]
    """The database's time (`control_plane/db/clock.py`)."""
    new_id: Callable[[], UUID]
    clock_refusal: Callable[[], str | None] = no_refusal
    """Why no activation may start, because the clock must not be trusted; None when it is right."""
    stop_times: StopTimes = field(default_factory=StopTimes)
    """When machines are stopped for lack of money, and how long their data is kept."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for so many seconds, while what is held is being worked on."""
    replica: str = "one"
    """The name of this process in reports."""
    tracer: Tracer = NO_TRACER

    def actor(self, loop: str) -> Actor:
        """The loop as the journal's actor."""
        return actor.loop(loop)
