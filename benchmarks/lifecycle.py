"""Leases from create to ready through every loop: one reconciler process, the fake provider at zero latency.

The reconciler is the real process with the real runner; machines are simulated. The time runs from the
reconciler's start to the last lease READY, by the times in the database.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time

from sqlalchemy import text

from benchmarks import ground
from benchmarks.results import Figure
from control_plane.db.engine import Database
from control_plane.db.engine import Role as DatabaseRole
from tests.support.rows import rows

LEASES = 1_000
SECONDS_MAX = 180

READY = text("SELECT count(*) FILTER (WHERE state = 'ready') AS ready FROM leases")


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_lifecycle")
    async with ground.customer(url) as (world, organization_id, _):
        process = _reconciler(url)
        try:
            await _offers(world.db)
            begun = time.perf_counter()
            await ground.order(world, organization_id, LEASES)
            ordered = time.perf_counter() - begun
            seconds = await _all_ready(world.db, begun)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    return [
        Figure("leases from create to ready", LEASES / seconds, "leases/s", ">= 50"),
        Figure("  of which ordering took", ordered, "s"),
    ]


def _reconciler(url: str) -> subprocess.Popen[bytes]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPLITPLANE", "PROVIDER"))
    }
    environment |= {
        "SPLITPLANE_DATABASE_URL": ground.login_url(url, DatabaseRole.RECONCILER),
        "SPLITPLANE_PROVIDER_ACCOUNTS": "fake",
        "PROVIDER_FAKE_STOCK": "1000000",
        "SPLITPLANE_SIMULATED_MACHINES": "yes",
        "SPLITPLANE_ACCEPT_EMULATED_GPUS": "yes",
        "SPLITPLANE_RECONCILER_METRICS_LISTEN": "127.0.0.1:0",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "reconciler", "run"], env=environment, stderr=subprocess.DEVNULL
    )


async def _offers(db: Database) -> None:
    """Wait until the reconciler has started and listed what can be bought."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        async with db.reading() as connection:
            if (await rows(connection, text("SELECT count(*) AS n FROM offers")))[0].n:
                return
        await asyncio.sleep(0.1)
    raise RuntimeError("the reconciler listed no offers")


async def _all_ready(db: Database, begun: float) -> float:
    while time.perf_counter() - begun < SECONDS_MAX:
        async with db.reading() as connection:
            if (await rows(connection, READY))[0].ready == LEASES:
                return time.perf_counter() - begun
        await asyncio.sleep(0.2)
    raise RuntimeError(f"not all leases became ready within {SECONDS_MAX} s")
