"""Where the reconciler's time goes on the way from create to ready: own CPU time by package, under cProfile.

It runs in one process with the fake provider, so that one profile covers the loops, the driver and the client side of
the database. The profiler makes Python calls slower than they are, so compare shares and not seconds.
"""

import asyncio
import cProfile
import dataclasses
import logging
import pstats
import time
from collections import defaultdict

import structlog

from benchmarks import fleet, ground
from benchmarks.lifecycle import READY
from benchmarks.results import Figure
from control_plane.db.engine import Database, Role
from control_plane.world import utc_now
from data_plane.access.ssh import new_host_key
from providers.fake import FakeProvider, Settings
from reconciler import registry
from reconciler.loops.providers import refresh_offers
from reconciler.runner import Runner
from tests.support.rows import rows

LEASES = 400
_PACKAGES = ("asyncpg", "sqlalchemy", "asyncssh", "cryptography", "uvloop", "structlog", "prometheus_client")
_OURS = (
    "control_plane/db",
    "control_plane/domain",
    "control_plane/outcomes",
    "control_plane/services",
    "reconciler",
    "data_plane",
    "providers",
)


async def measure() -> list[Figure]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    url = await ground.empty_database("bench_profile")
    async with ground.customer(url) as (world, organization_id, _):
        db = Database(url, role=Role.RECONCILER, pool_size=16, readers=16, rings=True)
        reconciler = await fleet.world_of(db, FakeProvider(now=utc_now, settings=Settings(stock=10**6)))
        reconciler = dataclasses.replace(reconciler, new_host_key=new_host_key)
        await refresh_offers.activate(reconciler, fleet.FAKE)
        await ground.order(world, organization_id, LEASES)
        profile, cpu_seconds = await _profiled(Runner(reconciler, registry.discovered().values()), db)
        await db.close()
    shares = _shares(profile)
    total = sum(shares.values())
    return [
        Figure("CPU per lease, profiler included", 1_000 * cpu_seconds / LEASES, "ms"),
        *(Figure(f"  {name}", 100 * seconds / total, "% of own time") for name, seconds in shares.items()),
    ]


async def _profiled(runner: Runner, db: Database) -> tuple[cProfile.Profile, float]:
    profile = cProfile.Profile()
    begun = time.process_time()
    profile.enable()
    running = asyncio.create_task(runner.run())
    while True:
        await asyncio.sleep(0.2)
        async with db.reading() as connection:
            if (await rows(connection, READY))[0].ready == LEASES:
                break
    profile.disable()
    cpu_seconds = time.process_time() - begun
    runner.stop()
    await running
    return profile, cpu_seconds


def _shares(profile: cProfile.Profile) -> dict[str, float]:
    """Own seconds by package, largest first. Waiting in `poll` is not work and is left out."""
    seconds: defaultdict[str, float] = defaultdict(float)
    raw = vars(pstats.Stats(profile))["stats"]  # The only place that keeps files; typeshed does not know it.
    for (file, _, name), (_, _, own, _, _) in raw.items():
        if "poll" not in name:
            seconds[_package(file, name)] += own
    return dict(sorted(seconds.items(), key=lambda one: -one[1])[:10])


def _package(file: str, name: str) -> str:
    for ours in _OURS:
        if f"/{ours}/" in file:
            return f"our {ours}"
    for package in _PACKAGES:
        if f"/{package}/" in file or package in name:
            return package
    if "send" in name or "recv" in name:
        return "sockets"
    return "Python's standard library and builtins"
