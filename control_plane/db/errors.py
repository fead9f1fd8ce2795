"""Classifies errors of the database by what they mean. This is the only list of errors that pass by themselves.

The API answers 503 to an error that passes, a loop leaves it to its next activation, and a process that starts waits.
"""

from collections.abc import Iterator

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

MIGRATE = "run `python -m control_plane migrate`"
_PASSING = (
    "08",  # The connection failed.
    "25006",  # The server is read-only: a replica that is about to be promoted.
    "25P03",  # The transaction was idle for too long, because this process stood still.
    "25P04",  # The transaction took too long.
    "28",  # The login is refused: its password is being changed, or the first migration has not made it yet.
    "3D000",  # The database does not exist: it is being restored.
    "40001",  # Serialization failure.
    "40003",  # The connection was lost at the commit.
    "40P01",  # Deadlock.
    "53",  # The server is out of connections, memory or disk.
    "55000",  # The database accepts no connections while it is being restored or moved.
    "55P03",  # Lock timeout.
    "57014",  # Statement timeout.
    "57P",  # The server is stopping, starting, or recovering from a crash; or the database was dropped.
    "58",  # The server's disk failed.
)
"""SQLSTATEs, or the first characters of several: PostgreSQL's manual, appendix A."""
_BAD_VALUE_CLASS = "22"


def is_database_trouble(error: BaseException) -> bool:
    """Whether the same work may succeed soon, because the database is unreachable, full, locked or changing.

    A group of errors passes when each of them does.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_database_trouble(part) for part in error.exceptions)
    if is_bad_value(error):
        return False
    if isinstance(error, InterfaceError | OperationalError | PoolTimeoutError | OSError):
        return True
    if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        # Unwrapped, it is an error of a connection that is being opened, such as a login that is refused; or the
        # driver lost its state of the protocol, because the server closed the connection while a request began.
        return True
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or _was_cached(error) or _sqlstate(error).startswith(_PASSING)


def is_bad_value(error: BaseException) -> bool:
    """Whether PostgreSQL refused a value, which our validation should have refused before."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return False
    # The driver raises ValueError for a value that it cannot encode, such as a number too large for the column.
    return _sqlstate(error).startswith(_BAD_VALUE_CLASS) or any(
        isinstance(cause, ValueError) for cause in _causes(error)
    )


def is_lock_timeout(error: DBAPIError) -> bool:
    """Whether a statement was given up because somebody else held a lock for too long."""
    return _sqlstate(error) == "55P03"


def sentence(error: BaseException, place: str) -> str:
    """What is wrong with the database at `place`, for a person. It contains no password and no value of a statement."""
    causes = tuple(_causes(error))
    for cause in causes:
        if isinstance(cause, asyncpg.PostgresError):
            return f"{_message(cause)} at {place}{_remedy(cause)}"
    match causes[-1]:
        case PoolTimeoutError():
            return f"all connections to {place} are in use"
        case TimeoutError():
            return f"no answer from {place}"
        case ConnectionRefusedError():
            return f"connection refused at {place}"
        case OSError(strerror=str(reason)):
            return f"{reason} at {place}"
        case cause:
            return f"{type(cause).__name__} at {place}"


def _message(error: asyncpg.PostgresError) -> str:
    """The server's own words, without the lines of detail, which may quote values."""
    return str(error.args[0]).splitlines()[0] if error.args else type(error).__name__


def _remedy(error: asyncpg.PostgresError) -> str:
    if isinstance(error, asyncpg.InvalidParameterValueError) and 'role "splitplane_' in _message(error):
        return f": {MIGRATE}"
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and the errors from which the layers below it made it."""
    found: BaseException | None = error
    while found is not None:
        yield found
        below = found.orig if isinstance(found, DBAPIError) else None
        found = None if isinstance(found, TimeoutError) else below or found.__cause__


def _was_cached(error: BaseException) -> bool:
    """Whether a statement was prepared before a migration. The next one is prepared anew."""
    return any(isinstance(cause, asyncpg.InvalidCachedStatementError) for cause in _causes(error))


def _sqlstate(error: DBAPIError) -> str:
    """The SQLSTATE of an error; empty when it does not come from PostgreSQL."""
    return str(getattr(error.orig, "sqlstate", None) or "")
