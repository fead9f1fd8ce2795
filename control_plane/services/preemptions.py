"""Preemptions, for operators: what is under way, what was decided, and whether they happen at all."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import preemptions
from control_plane.db.connection import Connection
from control_plane.db.preemptions import Preemption, StoredDecision, Switch
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.world import World

__all__ = ["Preemption", "StoredDecision", "Switch"]  # For controllers and views.


async def page(
    world: World,
    platform: OrganizationId,
    *,
    only_open: bool,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[Preemption]:
    """Preemptions of all leases, the latest first."""
    async with world.db.reading(platform) as connection:
        return await preemptions.page(connection, only_open=only_open, before=before, limit=limit)


async def decisions(
    world: World,
    platform: OrganizationId,
    *,
    for_lease_id: LeaseId | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[StoredDecision]:
    """What was decided about one lease in need, or about all, the latest first."""
    async with world.db.reading(platform) as connection:
        return await preemptions.decisions(connection, for_lease_id=for_lease_id, before=before, limit=limit)


async def switch(world: World, platform: OrganizationId) -> Switch | None:
    """Whether preemptions happen; None before anybody decided, which means that they do not."""
    async with world.db.reading(platform) as connection:
        return await preemptions.switch(connection)


async def put_switch(connection: Connection, world: World, *, armed: bool, by: str, reason: str) -> Switch:
    """Let preemptions happen, or not. Those that were announced are withdrawn when they do not."""
    wanted = Switch(world.now(), armed, by, reason)
    await preemptions.put_switch(connection, world.new_id(), wanted)
    return wanted
