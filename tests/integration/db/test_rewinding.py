"""The databases that tests share are put back completely. Otherwise one test would change what another one finds."""

from contextlib import AsyncExitStack

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from control_plane.db.engine import Database
from control_plane.db.tables.every import metadata
from tests.integration.db.sample import A, B, fill
from tests.support.database import fresh_database
from tests.support.rewinding import Rewinding, keep

pytestmark = pytest.mark.database

CHANGES = {
    "every row deleted": "DELETE FROM {}",
    "every row written anew": "UPDATE {0} SET {1} = {1}",
    "rows added": "CREATE TEMP TABLE more AS TABLE {0}; DELETE FROM {0}; INSERT INTO {0} ({2}) OVERRIDING SYSTEM VALUE "
    "SELECT {2} FROM more; DROP TABLE more",
}


async def _everything(connection: asyncpg.Connection) -> dict[str, list[str]]:
    found = {
        table.name: [
            row[0] for row in await connection.fetch(f"SELECT t::text FROM {table.name} t ORDER BY t::text")
        ]
        for table in metadata.sorted_tables
    }
    sequences = (
        "SELECT sequencename || ' ' || coalesce(last_value, 0) FROM pg_sequences ORDER BY sequencename"
    )
    return found | {"sequences": [row[0] for row in await connection.fetch(sequences)]}


async def test_whatever_was_changed_in_any_table_is_put_back(server_url: str, template: str) -> None:
    async with fresh_database(server_url, template) as filled:
        owner = Database(filled, role=None, pool_size=1, readers=1)
        async with owner.transaction() as connection:
            await fill(connection, A)
        await owner.close()
        await keep(filled)
        databases = Rewinding(server_url, make_url(filled).database or "")
        urls = set()
        for what, statement in CHANGES.items():
            async with databases.database() as rewound:
                urls.add(rewound.url)
                other = await asyncpg.connect(
                    rewound.url, server_settings={"session_replication_role": "replica"}
                )
                before = await _everything(other)
                assert all(before[table] for table in before), [
                    table for table in before if not before[table]
                ]
                for table in metadata.sorted_tables:
                    columns = [column.name for column in table.columns if column.computed is None]
                    changed = next(iter(table.columns)).name
                    if table.columns[changed].identity is None:
                        await other.execute(statement.format(table.name, changed, ", ".join(columns)))
            async with databases.database() as rewound:
                assert await _everything(other) == before, what
            await other.close()
        assert len(urls) == 1, "no database was used twice"
        await databases.close()


async def test_what_a_test_adds_to_an_empty_database_is_gone(rewinding: Rewinding) -> None:
    async with rewinding.database() as rewound:
        other = await asyncpg.connect(rewound.url)
        before = await _everything(other)
        owner = rewound.database("owner", _owners)
        async with owner.transaction() as connection:
            await fill(connection, A, B)
    async with rewinding.database() as again:
        assert again.url == rewound.url
        assert await _everything(other) == before
        await other.close()


async def test_a_database_whose_connections_are_still_in_use_is_not_lent_again(rewinding: Rewinding) -> None:
    async with AsyncExitStack() as held:
        async with rewinding.database() as rewound:
            await held.enter_async_context(rewound.database("slow", _owners).transaction())
        async with rewinding.database() as other:
            assert other.url != rewound.url


def _owners(url: str) -> Database:
    return Database(url, role=None, pool_size=1, readers=1)
