"""Databases that are put back to the moment at which they were made, so that the next test finds them warm.

A copy of a database is cold: every connection to it is new, reads the catalogue from nothing, and plans every statement
anew. The loops of the reconciler took ten times as long on a copy as on connections that had run them before. So a database
is used again, and what was changed in it is put back.

Which rows were changed is seen by their `xmin`, the transaction that wrote them: every insert and every update makes a row
with a new one, and a delete changes the number of rows.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import asyncpg

from control_plane.db.engine import Database
from tests.support.database import fresh_database

_TABLES = """
SELECT c.relname AS name,
       (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') AS columns,
       (SELECT string_agg(format('mine.%1$I ' || i.equals || ' kept.%1$I', attname), ' AND ') FROM pg_attribute
        WHERE attrelid = c.oid AND attnum = ANY(i.indkey)) AS same
FROM pg_class c LEFT JOIN LATERAL (
  SELECT indkey, CASE WHEN indnullsnotdistinct THEN 'IS NOT DISTINCT FROM' ELSE '=' END AS equals FROM pg_index
  WHERE indrelid = c.oid AND indisunique AND indpred IS NULL AND indexprs IS NULL
    AND (indnullsnotdistinct OR NOT EXISTS (
      SELECT FROM pg_attribute WHERE attrelid = c.oid AND attnum = ANY(indkey) AND NOT attnotnull
    ))
  ORDER BY indisprimary DESC LIMIT 1
) i ON true
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
ORDER BY c.relname
"""
_SEQUENCES = (
    "SELECT quote_ident(relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'"
)
_ROW = "mine.xmin::text::bigint > kept_at"
_EMPTY = "IF EXISTS (SELECT FROM public.{0}) THEN DELETE FROM public.{0}; END IF;"
_PUT_BACK = """
CREATE FUNCTION kept.put_back(kept_at bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE changed boolean;
BEGIN
{}
RETURN pg_current_xact_id()::text::bigint;
END $$
"""


Connect = Callable[[str], Database]


async def keep(url: str) -> None:
    """Keep what a database holds now, in a schema of its own. Copies of it can be put back to this moment."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE SCHEMA kept")
        steps = []
        for name, columns, same in await connection.fetch(_TABLES):
            rows = await connection.fetchval(f"SELECT count(*) FROM public.{name}")
            if rows:
                assert same, f"nothing tells the rows of {name} apart"
                await connection.execute(f"CREATE TABLE kept.{name} AS TABLE public.{name}")
            steps.append(_step(name, columns, same, rows) if rows else _EMPTY.format(name))
        for (name,) in await connection.fetch(_SEQUENCES):
            value, called = await connection.fetchrow(f"SELECT last_value, is_called FROM public.{name}")
            steps.append(f"PERFORM setval('public.{name}', {value}, {called});")
        await connection.execute(_PUT_BACK.format("\n".join(steps)))
    finally:
        await connection.close()


def _step(name: str, columns: str, same: str, rows: int) -> str:
    """The statements that put a table back, if it was changed."""
    return f"""
    SELECT count(*) <> {rows} OR bool_or({_ROW}) INTO changed FROM public.{name} mine;
    IF changed THEN
      DELETE FROM public.{name} mine WHERE {_ROW};
      INSERT INTO public.{name} ({columns}) OVERRIDING SYSTEM VALUE
      SELECT {columns} FROM kept.{name} kept WHERE NOT EXISTS (SELECT FROM public.{name} mine WHERE {same});
    END IF;"""


@dataclass
class Rewound:
    """One database that is used again and again, and the connections to it."""

    url: str
    _admin: asyncpg.Connection
    _since: int
    """The last transaction whose rows belong to the moment."""
    _databases: dict[str, Database] = field(default_factory=dict[str, Database])

    def database(self, name: str, connect: Connect) -> Database:
        """The connections with this name, which are made at their first use."""
        if name not in self._databases:
            self._databases[name] = connect(self.url)
        return self._databases[name]

    @property
    def in_use(self) -> bool:
        """Whether a connection is lent at this moment."""
        return any(pool.in_use for database in self._databases.values() for pool in database.pools())

    async def put_back(self) -> None:
        """Put every table back. Raises if somebody still holds a lock on a row of them."""
        self._since = await self._admin.fetchval("SELECT kept.put_back($1)", self._since)

    async def close(self) -> None:
        for database in self._databases.values():
            await database.close()
        await self._admin.close()


@dataclass
class Rewinding:
    """Databases that all begin with what a template holds, which `keep` has prepared."""

    server_url: str
    template: str
    _idle: list[Rewound] = field(default_factory=list[Rewound])
    _open: AsyncExitStack = field(default_factory=AsyncExitStack)

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Rewound]:
        """A database as the template is.

        Nobody gets it again after a failure, or while a connection to it is still lent: something goes on in it.
        """
        rewound = self._idle.pop() if self._idle else await self._open.enter_async_context(self.copied())
        yield rewound
        if not rewound.in_use:
            await rewound.put_back()
            self._idle.append(rewound)

    @asynccontextmanager
    async def copied(self) -> AsyncIterator[Rewound]:
        """A copy for one use."""
        async with fresh_database(self.server_url, self.template) as url:
            settings = {"session_replication_role": "replica", "lock_timeout": "5s"}
            admin = await asyncpg.connect(url, server_settings=settings)
            rewound = Rewound(url, admin, await admin.fetchval("SELECT pg_current_xact_id()::text::bigint"))
            try:
                yield rewound
            finally:
                await rewound.close()

    async def close(self) -> None:
        await self._open.aclose()
