"""Upgrade a database to the newest schema.

Migrations run while the old version serves, so they only add. What takes something away is a migration of its own, a
release or more later, with `contract = "why nobody uses it any more"` beside its revision
(tests/arch/test_migrations.py).
"""

from importlib import resources

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from control_plane.db import restored, roles

_LOCK = text("SELECT pg_advisory_lock(hashtext('splitplane migrations'))")
_UNLOCK = text("SELECT pg_advisory_unlock(hashtext('splitplane migrations'))")


def alembic_config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.files("control_plane.db") / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection) -> None:
    command.upgrade(alembic_config(connection), "head")


async def migrate(url: str) -> None:
    """Upgrade to head as the owner of the tables, and settle a journal that was restored.

    Any number of replicas may call it at the same time.
    """
    engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
    try:
        async with engine.connect() as connection:
            await connection.execute(_LOCK)
            await connection.commit()
            try:
                await roles.take_ownership(connection)
                await connection.commit()
                await connection.run_sync(_upgrade)
                await connection.commit()
                await restored.settle(connection)
                await connection.commit()
            finally:
                await connection.rollback()
                await roles.give_ownership_back(connection)
                await connection.execute(_UNLOCK)
                await connection.commit()
    finally:
        await engine.dispose()
