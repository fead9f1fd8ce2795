"""What an event stream reads when its lease may have changed: few reads at a time, one for all streams of a lease."""

import asyncio
from dataclasses import dataclass, field

from control_plane.api.limits import Turns
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.position import Position
from control_plane.domain.refusal import Refused
from control_plane.services import lease_overviews
from control_plane.services.lease_overviews import Watched
from control_plane.world import World

READS_MAX = 4
"""Reads at a time. More would only wait for the database and keep its connections from other requests."""
ORGANIZATION_READS_MAX = 2
"""Reads of one organization at a time, so that its streams leave room for those of others."""
LINES_MAX = 200
"""Lines of the journal per read."""


@dataclass
class _Waiting:
    """A read that has not begun, which every stream of the lease that needs one may share."""

    positions: list[Position] = field(default_factory=list)
    reading: "asyncio.Task[Watched | Refused] | None" = None

    def position(self) -> Position:
        """A position from which one read serves all of them."""
        longest = max(self.positions, key=lambda position: len(position.seen))
        return Position(min(position.horizon for position in self.positions), longest.seen)


class CatchUp:
    def __init__(self, world: World) -> None:
        self._world = world
        self._free = asyncio.Semaphore(READS_MAX)
        self._turns = Turns(ORGANIZATION_READS_MAX)
        self._waiting: dict[tuple[OrganizationId, LeaseId], _Waiting] = {}

    async def read(
        self, organization_id: OrganizationId, lease_id: LeaseId, position: Position
    ) -> Watched | Refused:
        """The lease now, and its lines behind `position`, perhaps with some before it."""
        key = (organization_id, lease_id)
        waiting = self._waiting.setdefault(key, _Waiting())
        waiting.positions.append(position)
        if waiting.reading is None:
            waiting.reading = asyncio.create_task(self._read(key, waiting))
        # One stream that ends must not end the read of the others.
        return await asyncio.shield(waiting.reading)

    async def _read(self, key: tuple[OrganizationId, LeaseId], waiting: _Waiting) -> Watched | Refused:
        organization_id, _ = key
        await self._turns.take(organization_id)
        try:
            async with self._free:
                del self._waiting[key]  # Whoever comes from now on needs a later read.
                return await lease_overviews.watch(
                    self._world, *key, position=waiting.position(), limit=LINES_MAX
                )
        finally:
            self._turns.give_back(organization_id)
