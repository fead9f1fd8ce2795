"""Checks whether the database is usable, and classifies its errors."""

from control_plane.db import schema
from control_plane.db.errors import is_bad_value, is_database_trouble
from control_plane.world import World

__all__ = ["is_bad_value", "is_database_trouble", "missing_column"]


async def missing_column(world: World) -> str | None:
    """The first column that this version needs and the database lacks; None when it has all of them."""
    async with world.db.reading() as connection:
        return await schema.missing_column(connection)
