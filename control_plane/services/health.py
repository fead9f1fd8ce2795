"""Whether the database is usable, and what its errors mean for a request."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from control_plane.db.engine import is_connection_trouble
from control_plane.db.rows import read
from control_plane.db.tables import metadata
from control_plane.world import World

# Statement timeout, lock timeout, serialization failure, deadlock, too many connections, shutdown, starting up.
_PASSING = {"57014", "55P03", "40001", "40P01", "53300", "57P01", "57P02", "57P03"}
_BAD_VALUE_CLASS = "22"
_COLUMNS = text("""
SELECT c.relname AS table_name, a.attname AS column_name FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = CAST('public' AS regnamespace) AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
""")


@dataclass(frozen=True, slots=True)
class _Column:
    table_name: str
    column_name: str


async def missing_column(world: World) -> str | None:
    """The first column that this version needs and the database lacks; None when it has all of them.

    A newer schema is fine, because migrations run while the old version serves.
    """
    async with world.db.reading() as connection:
        present = set(await read(connection, _COLUMNS, _Column))
    for table in metadata.sorted_tables:
        for column in table.columns:
            if _Column(table.name, column.name) not in present:
                return f"{table.name}.{column.name}"
    return None


def _sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error, whichever layer raised it; empty when it does not come from PostgreSQL."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(origin, "sqlstate", None) or "")


def is_database_trouble(error: BaseException) -> bool:
    """Whether the same request may succeed soon: the database is unreachable, full or locked."""
    if is_bad_value(error):
        return False
    return (
        is_connection_trouble(error)
        or isinstance(error, PoolTimeoutError | OSError)
        or _sqlstate(error) in _PASSING
    )


def is_bad_value(error: BaseException) -> bool:
    """Whether PostgreSQL refused a value as such. Validation should have refused it before."""
    # The driver raises ValueError for what it cannot encode, such as a number that the column is too narrow for.
    return _sqlstate(error).startswith(_BAD_VALUE_CLASS) or (
        isinstance(error, DBAPIError) and isinstance(error.orig, ValueError)
    )
