"""Errors of the database, as each layer raises them: which of them pass by themselves."""

import asyncio

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from control_plane.db.connect import DatabaseUrlError, check_url, place
from control_plane.db.errors import is_bad_value, is_database_trouble, sentence
from tests.support.cases import case

PASSING = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.PostgresIOError,
    asyncpg.AdminShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
)
LASTING = (
    asyncpg.UniqueViolationError,
    asyncpg.UndefinedTableError,
    asyncpg.PostgresSyntaxError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.NumericValueOutOfRangeError,
    asyncpg.RaiseError,
)


def _fast(error: Exception, *, lost: bool = False) -> DBAPIError:
    """The error as `fast.py` raises it: the driver's own below."""
    return DBAPIError("SELECT", None, error, connection_invalidated=lost)


class _AdaptedError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("adapted")
        self.sqlstate = sqlstate


def _slow(error: Exception) -> DBAPIError:
    """The error as SQLAlchemy raises it: a class of its adapter below, which has the driver's as its cause."""
    adapted = _AdaptedError(getattr(error, "sqlstate", None))
    adapted.__cause__ = error
    return DBAPIError("SELECT", None, adapted)


def test_errors_that_pass_are_told_from_errors_that_last_whichever_layer_raised_them() -> None:
    for kind in PASSING:
        for error in (_fast(kind("m")), _slow(kind("m"))):
            with case(kind.__name__, error):
                assert is_database_trouble(error)
    for kind in LASTING:
        for error in (_fast(kind("m")), _slow(kind("m"))):
            with case(kind.__name__, error):
                assert not is_database_trouble(error)


def test_whatever_happens_while_a_connection_is_opened_passes() -> None:
    refused = asyncpg.InvalidParameterValueError('role "splitplane_api" does not exist')
    for error in (
        ConnectionRefusedError(111, "Connect call failed"),
        FileNotFoundError(2, "No such file or directory"),
        TimeoutError(),
        PoolTimeoutError(),
        asyncpg.InvalidPasswordError("password authentication failed"),
        asyncpg.InternalClientError("lost"),
        refused,
        _fast(refused, lost=True),
        InterfaceError("SELECT", None, Exception("connection is closed")),
    ):
        with case(error):
            assert is_database_trouble(error)
            assert not is_bad_value(error)


def test_a_statement_that_a_migration_made_stale_passes() -> None:
    assert is_database_trouble(_slow(asyncpg.InvalidCachedStatementError("cached plan must not change")))


def test_a_value_that_cannot_be_stored_does_not_pass() -> None:
    for error in (
        _fast(asyncpg.NumericValueOutOfRangeError("m")),
        _fast(asyncpg.DataError("value out of int32 range")),
        _slow(asyncpg.DataError("value out of int32 range")),
    ):
        with case(error):
            assert is_bad_value(error)
            assert not is_database_trouble(error)


def test_a_group_of_errors_passes_when_all_of_them_do() -> None:
    passing = _fast(asyncpg.DeadlockDetectedError("m"))
    assert is_database_trouble(ExceptionGroup("two", [passing, TimeoutError()]))
    assert not is_database_trouble(ExceptionGroup("two", [passing, ZeroDivisionError()]))
    assert not is_database_trouble(IntegrityError("INSERT", None, asyncpg.UniqueViolationError("m")))
    assert not is_database_trouble(ZeroDivisionError())


def test_a_sentence_says_what_is_wrong_and_where_and_contains_no_detail() -> None:
    timed_out = TimeoutError()
    timed_out.__cause__ = asyncio.CancelledError()
    missing = asyncpg.InvalidCatalogNameError('database "cloud" does not exist\nDETAIL: secret')
    role = asyncpg.InvalidParameterValueError('role "splitplane_api" does not exist')
    for error, expected in (
        (
            ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"),
            "connection refused at db:5432",
        ),
        (timed_out, "no answer from db:5432"),
        (PoolTimeoutError("size 5"), "all connections to db:5432 are in use"),
        (FileNotFoundError(2, "No such file or directory"), "No such file or directory at db:5432"),
        (_fast(missing, lost=True), 'database "cloud" does not exist at db:5432'),
        (role, 'role "splitplane_api" does not exist at db:5432: run `python -m control_plane migrate`'),
        (ZeroDivisionError("secret"), "ZeroDivisionError at db:5432"),
    ):
        with case(error):
            assert sentence(error, "db:5432") == expected


def test_a_url_that_names_no_database_is_refused_without_being_quoted() -> None:
    for url in (
        "",
        "cloud",
        "mysql://u:planted@h/d",
        "postgresql://u:planted@h:port/d",
        "postgresql://u:planted@h:99999/d",
        "postgresql://u:planted@[::1/d",
        "postgresql://u:planted@:5432/d",
    ):
        with case(url), pytest.raises(DatabaseUrlError) as refused:
            check_url(url)
        assert "planted" not in str(refused.value)


def test_the_place_of_a_database_has_no_password_in_it() -> None:
    for url, expected in (
        ("postgresql://u:planted@h/d", "h:5432"),
        ("postgresql+asyncpg://u:planted@h:6432/d?sslmode=require", "h:6432"),
        ("postgres://u:planted@[::1]:6432/d", "[::1]:6432"),
        ("postgresql://u:planted@/d?host=/run/postgresql", "/run/postgresql"),
        ("postgresql:///d", "localhost:5432"),
    ):
        with case(url):
            check_url(url)
            assert place(url) == expected
