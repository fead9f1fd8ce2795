"""The migrations and the tables in code agree, to the last CHECK and index."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from control_plane.db import embedded
from control_plane.db.engine import Database
from control_plane.db.migrate import migrate
from control_plane.db.tables.every import metadata
from tests.support.rows import rows

pytestmark = pytest.mark.database
_counter = itertools.count()

# Only a migration makes partitions, which are parts of their table.
PARTITIONED = "SELECT c.relname FROM pg_class c WHERE c.relispartition"
CONSTRAINTS = f"""
SELECT conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid) AS line FROM pg_constraint
WHERE connamespace = 'public'::regnamespace AND conrelid <> 0 AND contype <> 't'
  AND conrelid::regclass::text NOT IN ({PARTITIONED})
"""
INDEXES = f"""
SELECT indexdef AS line FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT IN ({PARTITIONED})
"""
COLUMNS = f"""
SELECT concat_ws(' ', table_name, column_name, data_type, udt_name, is_nullable, column_default, identity_generation)
       AS line
FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT IN ({PARTITIONED})
"""


@pytest.fixture
async def empty_url(server_url: str) -> AsyncIterator[str]:
    name = f"empty_{os.getpid()}_{next(_counter)}"
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        yield embedded.named(server_url, name)
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()


async def _lines(url: str, statement: str) -> set[str]:
    database = Database(url, role=None, pool_size=1, readers=1)
    async with database.reading() as connection:
        found = await rows(connection, text(statement))
    await database.close()
    return {row.line for row in found if "alembic_version" not in row.line}


def _differences(connection: Connection) -> list[object]:
    partitions = set(connection.execute(text(PARTITIONED)).scalars())
    options = {
        "compare_server_default": True,
        "compare_type": True,
        "include_name": lambda name, kind, _: kind != "table" or name not in partitions,
    }
    context = MigrationContext.configure(connection, opts=options)
    return list(compare_metadata(context, metadata))


async def test_a_new_migration_would_be_empty(database_url: str) -> None:
    engine = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as connection:
        assert await connection.run_sync(_differences) == []
    await engine.dispose()


@pytest.mark.parametrize(
    "statement", [CONSTRAINTS, INDEXES, COLUMNS], ids=["constraints", "indexes", "columns"]
)
async def test_a_database_made_from_the_tables_is_the_one_that_was_migrated(
    database_url: str, empty_url: str, statement: str
) -> None:
    engine = create_async_engine(empty_url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()
    assert await _lines(database_url, statement) == await _lines(empty_url, statement)


async def test_any_number_of_replicas_may_migrate_at_once_and_again(empty_url: str) -> None:
    await asyncio.gather(*(migrate(empty_url) for _ in range(4)))
    await migrate(empty_url)
    assert await _lines(empty_url, "SELECT code AS line FROM installation")
    assert len(await _lines(empty_url, COLUMNS)) == sum(
        len(table.columns) for table in metadata.tables.values()
    )
