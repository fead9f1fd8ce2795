"""Checks whether the database is usable, and classifies its errors."""

from control_plane.db import schema
from control_plane.db.errors import is_bad_value, is_database_trouble
from control_plane.vault.errors import KeyManagerError
from control_plane.world import World

__all__ = ["is_bad_value", "is_database_trouble", "is_key_manager_trouble", "why_not_ready"]


async def why_not_ready(world: World) -> str | None:
    """Why this process cannot serve now, as a sentence; None when it can.

    Raises what the database raises when it cannot be reached.
    """
    async with world.db.reading() as connection:
        missing = await schema.missing_column(connection)
    if missing is not None:
        return "The database is not migrated to this version."
    if world.clock_refusal() is not None:
        return "The clock of the host and the clock of the database differ."
    return None


def is_key_manager_trouble(error: BaseException) -> bool:
    """Whether an error says that secrets cannot be sealed or opened now."""
    return isinstance(error, KeyManagerError)
