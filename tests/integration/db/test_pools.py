"""How much of each pool of connections is lent, as the metrics show it."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import text

from control_plane.db.engine import Database
from control_plane.pool_metrics import PoolCollector
from control_plane.world import uuid7

pytestmark = pytest.mark.database


async def test_the_metrics_show_how_many_connections_are_lent(own: Database) -> None:
    registry = CollectorRegistry()
    registry.register(PoolCollector(own.pools))

    def shown() -> list[float | None]:
        pools = ("transactions", "reads")
        name = "splitplane_database_connections_in_use"
        return [registry.get_sample_value(name, {"pool": pool}) for pool in pools]

    assert shown() == [0, 0]
    async with own.transaction(), own.transaction(), own.reading() as connection:
        assert shown() == [2, 1]
        waits = asyncio.create_task(_read(own))
        await asyncio.sleep(0)
        assert shown() == [2, 1], "who waits for a connection has none"
        await connection.execute(text("SELECT 1"))
        async with own.transaction(uuid7()):
            assert shown() == [3, 1]
    await waits
    assert shown() == [0, 0]
    most = registry.get_sample_value("splitplane_database_connections_max", {"pool": "reads"})
    assert most == 1


async def _read(database: Database) -> None:
    async with database.reading() as connection:
        await connection.execute(text("SELECT 1"))
