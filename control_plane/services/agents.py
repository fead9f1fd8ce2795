"""Reads what the agents on machines reported last."""

from collections.abc import Sequence

from control_plane.db import agents
from control_plane.db.agents import Place
from control_plane.domain.agent import SILENT_AFTER, Agent
from control_plane.domain.ids import OrganizationId
from control_plane.world import World

__all__ = ["Place"]  # For controllers, which must not import the layer below.


async def page(
    world: World, platform: OrganizationId, *, silent: bool, after: Place | None, limit: int
) -> Sequence[Agent]:
    """Agents by the age of their claims; with `silent`, only those that reported before and do not now.

    `platform`: the operators' organization.
    """
    before = world.now() - SILENT_AFTER if silent else None
    async with world.db.reading(platform) as connection:
        return await agents.page(connection, silent_since=before, after=after, limit=limit)
