"""Held work against one table: take rows, and record what was done, one row at a time and in batches.

`python -m benchmarks.row_claims`. Two statements per batch, each in a transaction of its own, as a loop
does it (take, commit; act; record, commit), on the embedded PostgreSQL with durable commits. Nothing is
done between them, so this is the limit of the database, not that of a provider.
"""

import asyncio
import time
from datetime import timedelta

from sqlalchemy import text

from benchmarks import ground
from benchmarks.results import Figure, machine, median, publish
from control_plane.db import work
from control_plane.db.engine import Database
from control_plane.world import utc_now, uuid7

ROWS = 20_000
SECONDS = 4.0
ROUNDS = 3

_TABLE = text("""
CREATE TABLE work (id int PRIMARY KEY, due_at timestamptz NOT NULL, work_token uuid, work_until timestamptz,
                   done bigint NOT NULL DEFAULT 0)
""")
_INDEX = text("CREATE INDEX ON work (due_at, id)")
_FILL = text("INSERT INTO work (id, due_at) SELECT n, now() FROM generate_series(1, :rows) n")
_TAKE = work.take("work", "due_at <= :now", order="due_at, id")
_RECORD = text(f"""
UPDATE work SET done = done + 1, due_at = :now, {work.GIVE_BACK}
WHERE {work.HELD} AND id = ANY(:ids)
""")


async def _worker(database: Database, batch: int, until: float) -> int:
    recorded = 0
    while time.perf_counter() < until:
        token, now = uuid7(), utc_now()
        values = {"token": token, "now": now, "until": now + timedelta(minutes=1), "limit": batch}
        async with database.transaction() as connection:
            ids = [row.id for row in (await connection.execute(_TAKE, values)).all()]
        async with database.transaction() as connection:
            done = await connection.execute(_RECORD, {"token": token, "ids": ids, "now": utc_now()})
        if done.rowcount != len(ids):
            raise RuntimeError("a row was lost to another worker")
        recorded += len(ids)
    return recorded


async def _rate(database: Database, batch: int, workers: int) -> float:
    rates = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        counts = await asyncio.gather(*(_worker(database, batch, begun + SECONDS) for _ in range(workers)))
        rates.append(sum(counts) / (time.perf_counter() - begun))
    return median(rates)


async def measure() -> list[Figure]:
    database = Database(await ground.empty_database("row_claims"), role=None, pool_size=8)
    async with database.transaction() as connection:
        await connection.execute(_TABLE)
        await connection.execute(_INDEX)
        await connection.execute(_FILL, {"rows": ROWS})
    figures = [
        Figure(
            f"take and record, batches of {batch}, {workers} workers",
            await _rate(database, batch, workers),
            "rows/s",
        )
        for batch in (1, 20, 100)
        for workers in (1, 4)
    ]
    await database.close()
    return figures


if __name__ == "__main__":
    print(machine())
    try:
        publish("row_claims", asyncio.run(measure()))
    finally:
        ground.stop()
