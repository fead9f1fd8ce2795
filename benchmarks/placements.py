"""Placement over a catalogue of 50,000 offers: one activation of `place_leases`, without a provider.

The offers are those of the quotes' benchmark, with a tenth in the one shape that is asked for. Leases wait that no
offer can serve, because every one is sold out, so that each activation ranks them all and nothing is bought; and then
leases that are placed. The CPU time of this process is measured besides; PostgreSQL's is not in it.
"""

import time

from sqlalchemy import text

from benchmarks import ground
from benchmarks.quotes import OFFERS, crowded, fill
from benchmarks.results import Figure, median
from control_plane.world import World as ApiWorld
from control_plane.world import uuid7
from reconciler.loops.leases import place_leases
from reconciler.worlds.accounts import AccountWorld
from tests.support.rows import rows

LEASES = 100
"""As many as one activation takes."""
TIMES = 10

_STOCK = text("UPDATE offers SET available = :available, observed_at = :now")
_DUE = text("UPDATE leases SET due_at = :now WHERE state = 'placing'")
_STORED = text("SELECT count(*) AS n, coalesce(max(octet_length(ranking::text)), 0) AS bytes FROM placements")


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_placements")
    async with ground.customer(url) as (world, organization_id, _):
        accounts = await fill(world, crowded())
        await ground.order(world, organization_id, LEASES)
        loops = AccountWorld(
            db=world.db, now=world.now, new_id=uuid7, account_names=accounts, installation="0123abcd"
        )
        title = f"{LEASES} leases, {OFFERS:,} offers"
        waiting = [await _activation(world, loops, available=False) for _ in range(TIMES)]
        placed = await _activation(world, loops, available=True)
        async with world.db.reading() as connection:
            (stored,) = await rows(connection, _STORED)
    return [
        Figure(f"{title}: none can be served", 1_000 * median([wall for wall, _ in waiting]), "ms"),
        Figure("  CPU", 1_000 * median([cpu for _, cpu in waiting]), "ms", note="of this process"),
        Figure(f"{title}: all are placed", 1_000 * placed[0], "ms"),
        Figure("  CPU", 1_000 * placed[1], "ms", note="of this process"),
        Figure("  the largest placement", stored.bytes / 1_000, "kB", note=f"{stored.n} are stored"),
    ]


async def _activation(api: ApiWorld, loops: AccountWorld, *, available: bool) -> tuple[float, float]:
    """Seconds and seconds of CPU time of one activation that looks at every lease."""
    async with api.db.transaction() as connection:
        await connection.execute(_STOCK, {"available": available, "now": api.now()})
        await connection.execute(_DUE, {"now": api.now()})
    begun, cpu = time.perf_counter(), time.process_time()
    report = await place_leases.activate(loops)
    if (report.looked_at, report.acted_on) != (LEASES, LEASES if available else 0):
        raise AssertionError(f"not every lease was looked at as expected: {report}")
    return time.perf_counter() - begun, time.process_time() - cpu
