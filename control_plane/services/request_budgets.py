"""Shares the rates of requests among all API processes."""

from collections.abc import Sequence
from uuid import UUID

from control_plane.db import request_budgets
from control_plane.domain.request_budget import Answer, Ask
from control_plane.world import World


async def take(world: World, process: UUID, asks: Sequence[Ask]) -> Answer:
    """Report what this process gave out, and take tokens for its stocks."""
    async with world.db.statement() as connection:
        return await request_budgets.take(connection, process, asks)
