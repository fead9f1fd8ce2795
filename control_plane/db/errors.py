"""Classifies errors of the database by what they mean for a request."""

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from control_plane.db.engine import is_connection_trouble

# Statement timeout, lock timeout, serialization failure, deadlock, too many connections, shutdown, starting up.
_PASSING = {"57014", "55P03", "40001", "40P01", "53300", "57P01", "57P02", "57P03"}
_BAD_VALUE_CLASS = "22"


def is_database_trouble(error: BaseException) -> bool:
    """Whether the same request may succeed soon, because the database is unreachable, full or locked."""
    if is_bad_value(error):
        return False
    return (
        is_connection_trouble(error)
        or isinstance(error, PoolTimeoutError | OSError)
        or _sqlstate(error) in _PASSING
    )


def is_bad_value(error: BaseException) -> bool:
    """Whether PostgreSQL refused a value, which our validation should have refused before."""
    # The driver raises ValueError for a value that it cannot encode, such as a number too large for the column.
    return _sqlstate(error).startswith(_BAD_VALUE_CLASS) or (
        isinstance(error, DBAPIError) and isinstance(error.orig, ValueError)
    )


def _sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error, whichever layer raised it; empty when it does not come from PostgreSQL."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(origin, "sqlstate", None) or "")
