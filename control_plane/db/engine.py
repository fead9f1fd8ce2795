"""Access to the database: transactions of a tenant or of the system, reads, and single statements.

The API process uses the role `splitplane_api`, for which the database filters every tenant table by
`app.organization_id`, so a query without its filter still returns no other tenant's rows.
The roles of the reconciler and of the administrator's commands see all tenants.
"""

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Self
from uuid import UUID

from sqlalchemy import text

from control_plane.db.bell import Bell
from control_plane.db.connect import place
from control_plane.db.connection import Connection
from control_plane.db.fast import FastPool

STATEMENT_TIMEOUT_MS = 15_000
LOCK_TIMEOUT_MS = 5_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 30_000

_SET_TENANT = text("SELECT set_config('app.organization_id', :organization, true)")


class Role(StrEnum):
    API = "splitplane_api"
    RECONCILER = "splitplane_reconciler"
    ADMIN = "splitplane_admin"
    """For the administrator's commands. It sees all tenants, and may write only what those commands write."""
    INGEST = "splitplane_ingest"
    """For the process that receives what machines measure. It adds samples, and reads no table."""


@dataclass(frozen=True, slots=True)
class PoolUse:
    """How many connections of a pool are lent at this moment, and how many there may be."""

    pool: str
    in_use: int
    size: int


class Database:
    """Connections of one process to one database, in one role (or the login's own role when None)."""

    def __init__(
        self, url: str, *, role: Role | None, pool_size: int = 10, readers: int = 10, rings: bool = False
    ) -> None:
        """`rings`: tell other processes which leases change, as every process that serves or reconciles does."""
        settings = {
            "application_name": "splitplane",
            "statement_timeout": str(STATEMENT_TIMEOUT_MS),
            "lock_timeout": str(LOCK_TIMEOUT_MS),
            "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_TIMEOUT_MS),
            # All statements are small and known: compiling them just in time costs more than running them.
            "jit": "off",
            # Pages are in memory or on a disk without heads, where the next page is no nearer than any other. With the
            # default of 4, small tables are read whole for every row that is looked up in them.
            "random_page_cost": "1.1",
        }
        if role is not None:
            settings["role"] = role.value
        if role is Role.API:
            # Its statements are constants that find few rows by index, and planning one of them anew took three
            # times as long as running it (docs/decisions/0002-api-server.md). ANALYZE makes PostgreSQL plan again.
            settings["plan_cache_mode"] = "force_generic_plan"
        self.role = role
        self.place = place(url)
        """Where the database is, for logs: no user and no password."""
        self._record: Callable[[Connection], Awaitable[None]] | None = None
        self._begin: Callable[[Connection], Awaitable[None]] | None = None
        self._bell = Bell(url, settings=settings) if rings else None
        self._readers = FastPool(url, settings=settings, size=readers, wait_seconds=10, bell=self._bell)
        self._writers = FastPool(url, settings=settings, size=pool_size, wait_seconds=10, bell=self._bell)

    def recording(
        self,
        record: Callable[[Connection], Awaitable[None]],
        *,
        begin: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> Self:
        """The same pools, where `record` writes something into every transaction before it is committed.

        What `record` raises rolls the transaction back, so that no change is committed without its record.
        `begin` is called when a transaction has begun.
        """
        same = copy.copy(self)
        vars(same)["_record"] = record
        vars(same)["_begin"] = begin
        return same

    @asynccontextmanager
    async def transaction(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        """One transaction: commits at the end, rolls back on any exception."""
        async with self._writers.connection("") as connection, connection.transaction(tenant):
            if self._begin is not None:
                await self._begin(connection)
            yield connection
            if self._record is not None:
                await self._record(connection)

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

    def pools(self) -> Sequence[PoolUse]:
        """How much each pool is used. Reads counters only, so any thread may ask."""
        return (
            PoolUse("transactions", self._writers.in_use, self._writers.size),
            PoolUse("reads", self._readers.in_use, self._readers.size),
        )

    async def close(self) -> None:
        """Close all connections at once, without a word to the server, which may stand still."""
        if self._bell is not None:
            await self._bell.close()
        self._readers.close()
        self._writers.close()


@asynccontextmanager
async def acting_for(connection: Connection, tenant: UUID, *, back_to: UUID) -> AsyncIterator[None]:
    """Let an operator's transaction write rows of another tenant, and then return to its own tenant."""
    await connection.execute(_SET_TENANT, {"organization": str(tenant)})
    yield
    await connection.execute(_SET_TENANT, {"organization": str(back_to)})
