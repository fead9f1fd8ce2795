"""Statements directly on asyncpg: every read and every transaction of ours.

A statement through SQLAlchemy's async engine costs 500 to 600 us of CPU, most of it in building result metadata and
switching greenlets; the same statement on asyncpg costs 100 (docs/decisions/0002-api-server.md and
0035-transactions-on-asyncpg.md). Statements are SQLAlchemy's, compiled once, and errors are as SQLAlchemy would raise
them. asyncpg has no type hints, so this file mentions `Any`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from operator import itemgetter
from typing import Any
from uuid import UUID
from weakref import WeakSet

import asyncpg
from sqlalchemy import ClauseElement, text
from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.sql.compiler import SQLCompiler

from control_plane.db.bell import Bell, Changed
from control_plane.db.connect import ANSWER_SECONDS_MAX, connect

STATEMENTS_KEPT_MAX = 1_000
"""Prepared statements per connection. Ours are constants, about 700 in all, so this limit is never reached."""
_REFUSED = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors that are raised as SQLAlchemy's. InternalClientError: the server closed the connection while a request
began, and the driver's state of the protocol is lost."""
_DIALECT = dialect()  # type: ignore[no-untyped-call]
_SET_TENANT = text("SELECT set_config('app.organization_id', :organization, false)")


class Row(asyncpg.Record):  # type: ignore[misc]
    """A record whose columns are attributes, as in SQLAlchemy's rows: see `_row_class`."""

    @property
    def _mapping(self) -> Mapping[str, Any]:
        return dict(self.items())


@lru_cache(maxsize=1_000)
def _row_class(columns: tuple[str, ...]) -> type[Row]:
    """The row class for these columns. A property on a C function costs a quarter of a `__getattr__`."""
    return type("Row", (Row,), {name: property(itemgetter(at)) for at, name in enumerate(columns)})


_row_class_of: dict[str, type[Row]] = {}
"""Row classes by statement. The columns of one are known once any connection has prepared it."""


class Result:
    def __init__(self, rows: list[Any], status: str) -> None:
        self._rows = rows
        self._status = status

    def all(self) -> Sequence[Any]:
        return self._rows

    @property
    def rowcount(self) -> int:
        """The number of rows read or written, from the command tag such as `UPDATE 3`."""
        count = self._status.rpartition(" ")[2]
        return int(count) if count.isdigit() else -1


@lru_cache(maxsize=1_000)
def _compiled(statement: ClauseElement) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
    """The SQL with numbered placeholders, the parameter names in their order, and the statement's own values."""
    compiled = statement.compile(dialect=_DIALECT)
    assert isinstance(compiled, SQLCompiler)  # noqa: S101 - what the dialect makes of any statement
    return str(compiled), tuple(compiled.positiontup or ()), compiled.params


def _as_sqlalchemy(error: Exception, sql: str | None, *, lost: bool) -> DBAPIError:
    """The error that SQLAlchemy would have raised. Its text contains no values."""
    violated = isinstance(error, asyncpg.IntegrityConstraintViolationError)
    kind = IntegrityError if violated else DBAPIError
    return kind(sql, None, error, hide_parameters=True, connection_invalidated=lost)


class FastConnection:
    """One connection. It remembers the tenant that it acted for last, and its prepared statements."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.changed = Changed()
        self._prepared: dict[str, Any] = {}
        self._tenant = ""

    @property
    def closed(self) -> bool:
        return bool(self._connection.is_closed())

    def close(self) -> None:
        self._connection.terminate()

    async def become(self, tenant: str) -> None:
        if self._tenant != tenant:
            await self.execute(_SET_TENANT, {"organization": tenant})
            self._tenant = tenant

    async def execute(self, statement: ClauseElement, values: Mapping[str, Any] | None = None, /) -> Result:
        sql, names, own = _compiled(statement)
        given = values or own
        arguments = [given[name] for name in names]
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await self._run_again_after_a_migration(sql, arguments)
        except _REFUSED as error:
            raise self._error_for(error, sql) from error
        except TimeoutError:
            self.close()  # The server stands still, or has vanished.
            raise

    async def _run_again_after_a_migration(self, sql: str, arguments: list[Any]) -> Result:
        try:
            return await self._run(sql, arguments)
        except asyncpg.InvalidCachedStatementError:
            # A migration ran meanwhile. Nothing was executed, and the statement is prepared for the new schema.
            self._prepared.clear()
            _row_class_of.pop(sql, None)
            return await self._run(sql, arguments)

    @asynccontextmanager
    async def transaction(self, tenant: UUID | None) -> AsyncIterator[None]:
        """One transaction, of `tenant` or of the system.

        The connection of a cancelled task is closed, which rolls it back: an answer may still arrive on it.
        """
        acting = "" if tenant is None else f"; SELECT set_config('app.organization_id', '{tenant}', true)"
        await self._run_script(f"BEGIN{acting}")
        try:
            yield
        except asyncio.CancelledError:
            self.changed.clear()
            self.close()
            raise
        except BaseException:
            self.changed.clear()
            try:
                await self._run_script("ROLLBACK")
            except Exception:  # noqa: BLE001 - what went wrong first says more, and this connection is not used again
                self.close()
            raise
        await self._run_script("COMMIT")

    async def _run_script(self, sql: str) -> None:
        """Run SQL without arguments: several statements in one round trip."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await self._connection.execute(sql)
        except _REFUSED as error:
            raise self._error_for(error, sql) from error
        except TimeoutError:
            self.close()
            raise

    def _error_for(self, error: Exception, sql: str) -> DBAPIError:
        if isinstance(error, asyncpg.InternalClientError):
            self.close()
        return _as_sqlalchemy(error, sql, lost=self.closed)

    async def _run(self, sql: str, arguments: list[Any]) -> Result:
        prepared = self._prepared.get(sql)
        if prepared is None:
            if len(self._prepared) >= STATEMENTS_KEPT_MAX:
                self._prepared.clear()
            if sql not in _row_class_of:
                columns = (await self._connection.prepare(sql)).get_attributes()
                _row_class_of[sql] = _row_class(tuple(column.name for column in columns))
            prepared = await self._connection.prepare(sql, record_class=_row_class_of[sql])
            self._prepared[sql] = prepared
        rows = await prepared.fetch(*arguments)
        return Result(rows, prepared.get_statusmsg() or "")


class FastPool:
    """A bounded pool of fast connections, opened when needed."""

    def __init__(
        self,
        url: str,
        *,
        settings: Mapping[str, str],
        size: int,
        wait_seconds: float,
        bell: Bell | None = None,
    ) -> None:
        self._url = url
        self._settings = dict(settings)
        self._wait_seconds = wait_seconds
        self._bell = bell
        self._free: list[FastConnection] = []
        self._opened = WeakSet[FastConnection]()
        self._places = asyncio.Semaphore(size)
        self.size = size
        self.in_use = 0
        """How many connections are lent, or being opened, at this moment."""

    @asynccontextmanager
    async def connection(self, tenant: str) -> AsyncIterator[FastConnection]:
        """A connection that acts for `tenant` (a UUID; empty for none) until it is given back."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise PoolTimeoutError("all connections are in use") from error
        pooled: FastConnection | None = None
        self.in_use += 1
        try:
            pooled = await self._take()
            await pooled.become(tenant)
            yield pooled
        except Exception:
            self._give_back(pooled)  # The connection is still usable after a refused statement.
            raise
        except BaseException:
            if pooled is not None:
                pooled.close()  # It was cancelled: an answer may still arrive on this connection.
            raise
        else:
            self._give_back(pooled)
        finally:
            self.in_use -= 1
            self._places.release()

    async def _take(self) -> FastConnection:
        while self._free:
            pooled = self._free.pop()
            if not pooled.closed:
                return pooled
        try:
            connection = await connect(self._url, settings=self._settings, record_class=Row)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise _as_sqlalchemy(error, None, lost=True) from error
        opened = FastConnection(connection)
        self._opened.add(opened)
        if self._bell is not None:
            opened.changed.listen(connection)
        try:
            await _read_json(connection)
        except BaseException as error:
            opened.close()
            if isinstance(error, _REFUSED):
                raise _as_sqlalchemy(error, None, lost=True) from error
            raise
        return opened

    def _give_back(self, pooled: FastConnection | None) -> None:
        if pooled is not None and self._bell is not None:
            self._bell.ring(pooled.changed.take())
        if pooled is not None and not pooled.closed:
            self._free.append(pooled)

    def close(self) -> None:
        """Close every connection at once, also those that are lent."""
        for opened in list(self._opened):
            opened.close()
        self._free.clear()


async def _read_json(connection: Any) -> None:
    """Have JSON decoded by a new connection."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(
                kind, encoder=str, decoder=json.loads, schema="pg_catalog", format="text"
            )
