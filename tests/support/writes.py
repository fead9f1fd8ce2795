"""Which tables an activation writes, as PostgreSQL itself sees it.

Every INSERT, UPDATE and DELETE takes a lock of the mode RowExclusiveLock on its table, whether it finds rows or not,
and keeps it until the commit. Just before each commit the locks of the transaction are read.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.engine import Database
from tests.support.rows import rows

_WRITTEN = text("""
SELECT c.relname AS name FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.mode = 'RowExclusiveLock' AND c.relkind = 'r'
""")


@dataclass
class WatchedDatabase:
    """Stands in for a `Database`, and keeps the names of the tables that were written through it."""

    inner: Database
    written: set[str] = field(default_factory=set[str])

    @asynccontextmanager
    async def transaction(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        async with self.inner.transaction(tenant) as connection:
            yield connection
            self.written |= {row.name for row in await rows(connection, _WRITTEN)}

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Connection]:
        """A single statement gives its locks back at once, so here it runs in a transaction."""
        async with self.transaction() as connection:
            yield connection

    @asynccontextmanager
    async def reading(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        async with self.inner.reading(tenant) as connection:
            yield connection


def pairs(written: dict[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """Every loop with itself, and with each later one (by name) that writes a table which it writes too."""
    names = sorted(written)
    for index, name in enumerate(names):
        yield name, name
        yield from ((name, other) for other in names[index + 1 :] if written[name] & written[other])
