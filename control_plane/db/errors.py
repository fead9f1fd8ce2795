"""What PostgreSQL's errors mean to somebody who asked for something."""

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from control_plane.db.engine import is_connection_trouble

# Statement timeout, lock timeout, serialization failure, deadlock, too many connections, shutdown, starting up.
_PASSING = {"57014", "55P03", "40001", "40P01", "53300", "57P01", "57P02", "57P03"}
_BAD_VALUE_CLASS = "22"


def is_database_trouble(error: BaseException) -> bool:
    """Whether the same request may succeed a little later: the database is away, full or locked."""
    if is_bad_value(error):
        return False
    return (
        is_connection_trouble(error)
        or isinstance(error, PoolTimeoutError | OSError)
        or _sqlstate(error) in _PASSING
    )


def is_bad_value(error: BaseException) -> bool:
    """Whether PostgreSQL refused a value as such. Validation comes first, so this is a net below it."""
    # The driver refuses what it cannot encode, such as a number beyond the column's width, with a ValueError.
    return _sqlstate(error).startswith(_BAD_VALUE_CLASS) or (
        isinstance(error, DBAPIError) and isinstance(error.orig, ValueError)
    )


def _sqlstate(error: BaseException) -> str:
    """PostgreSQL's own code of an error, whichever layer raised it; empty when it was not PostgreSQL."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(origin, "sqlstate", None) or "")
