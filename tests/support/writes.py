"""Which tables an activation writes, as PostgreSQL itself sees it.

Every INSERT, UPDATE and DELETE takes a lock of the mode RowExclusiveLock on its table, whether it finds rows or not,
and keeps it until the commit. Just before each commit the locks of the transaction are read, and which tables it has
only added rows to.
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
_ONLY_ADDED = text("""
SELECT relname AS name FROM pg_stat_xact_user_tables WHERE n_tup_ins > 0 AND n_tup_upd = 0 AND n_tup_del = 0
""")


@dataclass(frozen=True, slots=True)
class Writes:
    """The tables that a loop writes."""

    changed: frozenset[str]
    """Those of which it changes or deletes rows, or looks for some."""
    added: frozenset[str]
    """Those to which it adds rows."""

    def meets(self, other: "Writes") -> bool:
        """Whether one of the two changes what the other one writes. Two that only add rows undo nothing."""
        mine, theirs = self.changed | self.added, other.changed | other.added
        return bool(self.changed & theirs or other.changed & mine)


@dataclass
class WatchedDatabase:
    """Stands in for a `Database`, and keeps the names of the tables that were written through it."""

    inner: Database
    changed: set[str] = field(default_factory=set[str])
    added: set[str] = field(default_factory=set[str])

    @asynccontextmanager
    async def transaction(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        async with self.inner.transaction(tenant) as connection:
            yield connection
            only_added = {row.name for row in await rows(connection, _ONLY_ADDED)}
            self.added |= only_added
            self.changed |= {row.name for row in await rows(connection, _WRITTEN)} - only_added

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Connection]:
        """A single statement gives its locks back at once, so here it runs in a transaction."""
        async with self.transaction() as connection:
            yield connection

    @asynccontextmanager
    async def reading(self, tenant: UUID | None = None) -> AsyncIterator[Connection]:
        async with self.inner.reading(tenant) as connection:
            yield connection


def pairs(written: dict[str, Writes]) -> Iterator[tuple[str, str]]:
    """Every loop with itself, and with each later one (by name) that it meets in a table."""
    names = sorted(written)
    for index, name in enumerate(names):
        yield name, name
        yield from ((name, other) for other in names[index + 1 :] if written[name].meets(written[other]))
