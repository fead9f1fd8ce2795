"""Access to the database: transactions of a tenant or of the system, reads, and single statements.

The API process uses the role `splitplane_api`, for which the database filters every tenant table by
`app.organization_id`, so a query without its filter still returns no other tenant's rows.
The reconciler's role sees all tenants.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import create_async_engine

from control_plane.db.connection import Connection
from control_plane.db.fast import FastPool

STATEMENT_TIMEOUT_MS = 15_000
LOCK_TIMEOUT_MS = 5_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 30_000

_SET_TENANT = text("SELECT set_config('app.organization_id', :organization, true)")
_CHECK_NOW = text("SET CONSTRAINTS ALL IMMEDIATE")


class Role(StrEnum):
    API = "splitplane_api"
    RECONCILER = "splitplane_reconciler"


class Database:
    """Connections of one process to one database, in one role (or the login's own role when None)."""

    def __init__(self, url: str, *, role: Role | None, pool_size: int = 10, readers: int = 10) -> None:
        settings = {
            "application_name": "splitplane",
            "statement_timeout": str(STATEMENT_TIMEOUT_MS),
            "lock_timeout": str(LOCK_TIMEOUT_MS),
            "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_TIMEOUT_MS),
            # All statements are small and known: compiling them just in time costs more than running them.
            "jit": "off",
        }
        if role is not None:
            settings["role"] = role.value
        if role is Role.API:
            # Its statements are constants that find few rows by index, and planning one of them anew took three
            # times as long as running it (docs/decisions/0002-api-server.md). ANALYZE makes PostgreSQL plan again.
            settings["plan_cache_mode"] = "force_generic_plan"
        arguments: dict[str, Any] = {
            "connect_args": {"server_settings": settings, "timeout": 10},
            "pool_timeout": 10,
            "max_overflow": 0,
            # The text of an error is logged; the values of its statement must not be.
            "hide_parameters": True,
            # A restarted database closes our connections. A check at every checkout would cost every request a
            # round trip, so a dead connection fails one request or activation instead.
            "pool_pre_ping": False,
        }
        driver_url = make_url(url).set(drivername="postgresql+asyncpg")
        self._writes = create_async_engine(driver_url, pool_size=pool_size, **arguments)
        self._readers = FastPool(url, settings=settings, size=readers, wait_seconds=10)
        self._fast_writers = FastPool(url, settings=settings, size=pool_size, wait_seconds=10)

    @asynccontextmanager
    async def transaction(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        """One transaction: commits at the end, rolls back on any exception."""
        async with self._writes.begin() as connection:
            if tenant is not None:
                await connection.execute(_SET_TENANT, {"organization": str(tenant)})
            yield connection

    @asynccontextmanager
    async def fast_transaction(self, tenant: UUID) -> AsyncIterator[Connection]:
        """As `transaction`, directly on asyncpg: for writes that the API makes hundreds of times per second."""
        async with self._fast_writers.connection("") as connection, connection.transaction(tenant):
            yield connection

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Connection]:
        """For one statement of the system that is a transaction by itself; saves the round trips around it."""
        async with self.reading() as connection:
            yield connection

    @asynccontextmanager
    async def reading(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        """Single statements without a transaction around them: half the round trips of a transaction.

        They run directly on asyncpg: see fast.py.
        """
        async with self._readers.connection(str(tenant) if tenant is not None else "") as connection:
            yield connection

    async def close(self) -> None:
        await asyncio.gather(self._writes.dispose(), self._readers.close(), self._fast_writers.close())


@asynccontextmanager
async def acting_for(connection: Connection, tenant: UUID, *, back_to: UUID) -> AsyncIterator[None]:
    """Let an operator's transaction write rows of another tenant, and then return to its own tenant.

    Deferred constraints are checked before the return, because the check sees only rows of the tenant
    that is set at that moment.
    """
    await connection.execute(_SET_TENANT, {"organization": str(tenant)})
    yield
    await connection.execute(_CHECK_NOW)
    await connection.execute(_SET_TENANT, {"organization": str(back_to)})


_AWAY = ("08", "57P", "53")
"""SQLSTATE prefixes of a server that is unreachable, stopping, starting or full: PostgreSQL's manual, appendix A."""


def is_connection_trouble(error: BaseException) -> bool:
    """Whether the database was unreachable rather than refusing the statement, so that a retry may succeed.

    A server that dies while a connection is being made causes a plain error of class 08, one that is still
    starting 57P03; in both cases there is no connection yet that could be invalidated. When the socket is
    missing or the name does not resolve, the error is an OSError.
    """
    if isinstance(error, InterfaceError | OperationalError | PoolTimeoutError | OSError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return error.connection_invalidated or state.startswith(_AWAY)
