"""A migration holds up nobody: what waits for a lock is undone and started again."""

import asyncpg
import pytest
from sqlalchemy import Connection, text

from control_plane.db import migrate
from control_plane.db.migrate import TRIES_MAX, TableInUseError

pytestmark = pytest.mark.database
_READ = "SELECT count(*) FROM leases"


@pytest.fixture(autouse=True)
def a_step_that_changes_a_busy_table(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def upgrade(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE environments ADD COLUMN later text"))
        connection.execute(text("ALTER TABLE leases ADD COLUMN later text"))

    monkeypatch.setattr(migrate, "_upgrade", upgrade)
    monkeypatch.setattr(migrate, "LOCK_WAIT", "20ms")


async def _has_column(connection: "asyncpg.Connection[asyncpg.Record]", table: str) -> bool:
    asked = "SELECT count(*) FROM information_schema.columns WHERE table_name = $1 AND column_name = 'later'"
    return bool(await connection.fetchval(asked, table))


async def test_a_migration_lets_others_read_while_a_dump_holds_a_table_and_goes_on_after_it(
    database_url: str,
) -> None:
    dump, customer = await asyncpg.connect(database_url), await asyncpg.connect(database_url)
    transaction = dump.transaction()
    await transaction.start()
    await dump.fetchval(_READ)
    told, looks = list[str](), list[bool]()

    async def pause(_: float) -> None:
        assert await customer.fetchval(_READ, timeout=5) == 0
        looks.append(await _has_column(customer, "environments"))
        if len(looks) == 2:
            await transaction.rollback()

    await migrate.migrate(database_url, tell=told.append, pause=pause)
    assert looks == [False, False], "a try that was given up left nothing"
    assert told == ["A table is in use, perhaps by a dump. Nothing was changed; trying again in 10 s."] * 2
    assert await _has_column(customer, "leases")
    await dump.close()
    await customer.close()


async def test_a_migration_gives_up_when_a_table_stays_in_use(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_WAIT", "1ms")
    dump = await asyncpg.connect(database_url)
    pauses = list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with dump.transaction():
        await dump.fetchval(_READ)
        with pytest.raises(TableInUseError, match="in use for 10 minutes"):
            await migrate.migrate(database_url, pause=pause)
    assert len(pauses) == TRIES_MAX - 1
    assert not await _has_column(dump, "environments")
    await dump.close()
