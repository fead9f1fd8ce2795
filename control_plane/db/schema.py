"""Checks that the database has every column that this code needs."""

from dataclasses import dataclass

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.errors import MIGRATE
from control_plane.db.rows import read
from control_plane.db.tables.every import metadata


@dataclass(frozen=True, slots=True)
class _Column:
    table_name: str
    column_name: str


_COLUMNS = text("""
SELECT c.relname AS table_name, a.attname AS column_name FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = CAST('public' AS regnamespace) AND c.relkind IN ('r', 'p')
  AND a.attnum > 0 AND NOT a.attisdropped
""")


async def missing_column(connection: Connection) -> str | None:
    """The first column that this version needs and the database lacks; None when it has all of them.

    A newer schema is fine, because migrations run while the old version serves.
    """
    present = set(await read(connection, _COLUMNS, _Column))
    for table in metadata.sorted_tables:
        for column in table.columns:
            if _Column(table.name, column.name) not in present:
                return f"{table.name}.{column.name}"
    return None


async def why_unusable(connection: Connection) -> str | None:
    """What this version lacks in the database, and how to add it; None when it lacks nothing."""
    missing = await missing_column(connection)
    return None if missing is None else f"the database lacks the column {missing}: {MIGRATE}"
