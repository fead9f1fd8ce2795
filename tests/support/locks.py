"""Who waits for a lock, for tests of what happens at the same time."""

import asyncio

from sqlalchemy import text

from control_plane.db.engine import Database
from tests.support.rows import rows

_WAITING = text("""
SELECT count(*) AS waiting FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
""")


async def until_somebody_waits(owner: Database) -> None:
    """Return when a connection waits for a lock. `owner` has the role that sees what others wait for."""
    async with asyncio.timeout(20), owner.reading() as connection:
        while not (await rows(connection, _WAITING))[0].waiting:
            pass
