"""Upgrade a database to the newest schema.

Migrations run while the old version serves, so they only add. What takes something away is a migration of its own, a
release or more later, with `contract = "why nobody uses it any more"` beside its revision
(tests/arch/test_migrations.py).

A step that waits for a lock holds up everybody who comes to the table after it. So it waits for two seconds, is undone,
and is started again a little later, until a dump or another long transaction has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import resources

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from control_plane.db import restored, roles
from control_plane.db.errors import is_lock_timeout

LOCK_WAIT = "2s"
PAUSE_SECONDS = 10.0
TRIES_MAX = 60
_LOCK = text("SELECT pg_advisory_lock(hashtext('splitplane migrations'))")
_WAIT = text("SELECT set_config('lock_timeout', :wait, false)")
_UNLOCK = text("SELECT pg_advisory_unlock(hashtext('splitplane migrations'))")


class TableInUseError(Exception):
    """A table that a migration changes was in use at every try. Nothing was changed."""


def alembic_config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.files("control_plane.db") / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection) -> None:
    command.upgrade(alembic_config(connection), "head")


async def _upgrade_between_others(
    connection: AsyncConnection, tell: Callable[[str], None], pause: Callable[[float], Awaitable[None]]
) -> None:
    await connection.execute(_WAIT, {"wait": LOCK_WAIT})
    await connection.commit()  # Otherwise a try that is undone would take the setting back.
    for tried in range(1, TRIES_MAX + 1):
        try:
            await connection.run_sync(_upgrade)
            await connection.commit()
            break
        except DBAPIError as error:
            await connection.rollback()
            if not is_lock_timeout(error):
                raise
        if tried == TRIES_MAX:
            minutes = round(TRIES_MAX * PAUSE_SECONDS / 60)
            raise TableInUseError(
                f"A table was in use for {minutes} minutes, by a dump or another long transaction (pg_stat_activity"
                " shows it). Nothing was changed: run `migrate` again when it has ended."
            )
        tell(
            f"A table is in use, perhaps by a dump. Nothing was changed; trying again in {PAUSE_SECONDS:.0f} s."
        )
        await pause(PAUSE_SECONDS)
    await connection.execute(_WAIT, {"wait": "0"})


async def migrate(
    url: str,
    *,
    tell: Callable[[str], None] = lambda _: None,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Upgrade to head as the owner of the tables, and settle a journal that was restored.

    Any number of replicas may call it at the same time. Raises TableInUseError when a table is in use for too long.
    """
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    try:
        async with engine.connect() as connection:
            await connection.execute(_LOCK)
            await connection.commit()
            try:
                await roles.take_ownership(connection)
                await connection.commit()
                await _upgrade_between_others(connection, tell, pause)
                await restored.settle(connection)
                await connection.commit()
            finally:
                await connection.rollback()
                await roles.give_ownership_back(connection)
                await connection.execute(_UNLOCK)
                await connection.commit()
    finally:
        await engine.dispose()
