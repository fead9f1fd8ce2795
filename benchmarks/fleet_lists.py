"""What operators read of a fleet of 100,000 machines: a page of its list, a search in it, and its totals.

The machines are of five providers and ten regions; one in a hundred is missing, and no lease holds one in ten of them.
Besides the time, the benchmark counts the rows of machines that PostgreSQL read by scanning the whole table, which is
zero where it used an index.
"""

import time

from sqlalchemy import text

from benchmarks import ground
from benchmarks.fleet import FAKE, plant
from benchmarks.results import Figure, median, percentile
from control_plane.db import accounts, fleet
from control_plane.db.connection import Connection
from control_plane.db.engine import Database, Role
from control_plane.db.fleet import FleetFilter
from control_plane.domain.health import Verdict
from control_plane.domain.ids import OrganizationId
from control_plane.world import utc_now
from tests.support.rows import rows

MACHINES = 100_000
PAGE = 51
"""A page of the API, and one row more that tells whether there is another one."""
TIMES = 30
TOTALS_TIMES = 5

_SPREAD = text("""
UPDATE machines m SET provider = 'provider' || n % 5, region = 'eu-zone-' || n % 10,
  missed_since = CASE WHEN n % 100 = 0 THEN now() END
FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM machines) numbered WHERE numbered.id = m.id
""")
_FREE = text("""
UPDATE claims c SET ended_at = now() FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM claims) numbered
WHERE numbered.id = c.id AND n % 10 = 0
""")
_PLATFORM = text("UPDATE organizations SET platform = true WHERE id = :id")
_SCANNED = text("SELECT seq_tup_read AS n FROM pg_stat_xact_user_tables WHERE relname = 'machines'")


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_fleet_lists")
    async with ground.customer(url) as (world, organization_id, _):
        async with world.db.transaction() as connection:
            await accounts.register(connection, FAKE, "fake", now=utc_now())
            await plant(connection, organization_id, MACHINES)
            for statement in (_SPREAD, _FREE):
                await connection.execute(statement)
            await connection.execute(_PLATFORM, {"id": organization_id})
        async with world.db.transaction() as connection:
            await connection.execute(text("ANALYZE"))
    api = Database(ground.login_url(url, Role.API), role=Role.API)
    figures: list[Figure] = []
    for title, only in (
        ("a page", FleetFilter()),
        ("a page of one provider and region", FleetFilter(provider="provider1", region="eu-zone-6")),
        ("a page of what is lost", FleetFilter(verdict=Verdict.LOST)),
    ):
        figures += await _timed(api, organization_id, title, only, TIMES, totals=False)
    figures += await _timed(api, organization_id, "totals", FleetFilter(), TOTALS_TIMES, totals=True)
    await api.close()
    return figures


async def _timed(
    api: Database, platform: OrganizationId, title: str, only: FleetFilter, times: int, *, totals: bool
) -> list[Figure]:
    seconds: list[float] = []
    scanned = 0
    for _ in range(times):
        async with api.reading(platform) as connection:
            begun = time.perf_counter()
            found = await _read(connection, only, totals=totals)
            seconds.append(time.perf_counter() - begun)
            scanned += sum(row.n for row in await rows(connection, _SCANNED))
        if found == 0:
            raise AssertionError(f"{title}: nothing was found")
    name = f"{MACHINES:,} machines, {title}"
    return [
        Figure(f"{name}: p50", 1_000 * median(seconds), "ms"),
        Figure(f"{name}: p99", 1_000 * percentile(seconds, 0.99), "ms"),
        Figure("  machines read without an index", scanned / times, "rows", "<= 0" if not totals else ""),
    ]


async def _read(connection: Connection, only: FleetFilter, *, totals: bool) -> int:
    if totals:
        return sum(count.machines for count in await fleet.totals(connection, only, now=utc_now()))
    return len(await fleet.page(connection, only, after=None, limit=PAGE, now=utc_now()))
