"""Usage events and rated lines a second: 10,000 running leases of 100 customers, hour by hour.

An event is an hour of a lease, from the journal to the ledger: `meter_usage` stores its interval, and `rate_usage` its
charge, the posting and the use of the hold. Each loop runs by itself and to the end, as one replica on one connection,
with durable commits; and then as two replicas at once, which are a process each, as in production. CPU says more than
the rate where other work runs on the machine.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text

from benchmarks import ground, used_leases
from benchmarks.metering_replica import Replica, Step
from benchmarks.results import Figure, median
from benchmarks.used_leases import LEASES, MONTH, Clock
from reconciler.world import World

HOURS = 5
REPLICAS = 2
STEPS: tuple[Step, ...] = ("meter", "rate")
_BACKEND = text("SELECT pg_backend_pid()")


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_metering")
    clock = Clock(MONTH)
    await used_leases.customers(url, clock.now)
    await used_leases.plant(url)
    world = used_leases.loop_world(url, clock.now)
    metered, rated, cpu, own, whole = [], [], [], [], []
    for hour in range(1, HOURS + 2):
        clock.time = MONTH + timedelta(hours=hour, minutes=1)
        await used_leases.listed(world)
        began, server = time.process_time(), ground.server_cpu()
        metered.append(await _seconds(world, used_leases.meter))
        before = await _backend_cpu(world)
        rated.append(await _seconds(world, used_leases.rate))
        cpu.append(await _backend_cpu(world) - before)
        own.append(time.process_time() - began)
        whole.append(ground.server_cpu() - server)
        if hour == 1:
            await used_leases.analyze(url)
    together = await _by_replicas(url, world, clock)
    await world.db.close()
    # In the first hour, tables are empty, statements are prepared and connections opened.
    metered, rated, cpu = metered[1:], rated[1:], cpu[1:]
    both = [a + b for a, b in zip(metered, rated, strict=True)]
    return [
        _figure("intervals metered", metered),
        _figure("lines rated and posted", rated),
        Figure("  CPU of PostgreSQL for a line", median(cpu) / LEASES * 1e6, "us"),
        _figure("usage events, metered and rated", both, ">= 5000"),
        _figure(f"the same by {REPLICAS} replicas, a process each", together[1:], ">= 5000"),
        Figure("  CPU of this process for an event", median(own[1:]) / LEASES * 1e6, "us"),
        Figure(
            "  CPU of PostgreSQL for an event",
            median(whole[1:]) / LEASES * 1e6,
            "us",
            note="all of its processes",
        ),
    ]


async def _seconds(world: World, run: Callable[[World], Awaitable[int]]) -> float:
    begun = time.perf_counter()
    _whole(await run(world))
    return time.perf_counter() - begun


async def _by_replicas(url: str, world: World, clock: Clock) -> list[float]:
    """The seconds of each hour by several replicas at once; in the first one, they open connections."""
    replicas = [await Replica.start(url) for _ in range(REPLICAS)]
    seconds = []
    for hour in range(HOURS + 2, 2 * HOURS + 3):
        clock.time = MONTH + timedelta(hours=hour, minutes=1)
        await used_leases.listed(world)
        begun = time.perf_counter()
        for loop in STEPS:
            _whole(sum(await asyncio.gather(*(replica.run(loop, clock.time) for replica in replicas))))
        seconds.append(time.perf_counter() - begun)
    for replica in replicas:
        await replica.stop()
    return seconds


def _whole(done: int) -> None:
    """Raises RuntimeError unless each lease was worked on."""
    if done != LEASES:
        raise RuntimeError(f"{done} intervals instead of {LEASES}")


async def _backend_cpu(world: World) -> float:
    """The CPU seconds of the server's process for the one connection that the loops use."""
    async with world.db.transaction() as connection:
        ((pid,),) = (await connection.execute(_BACKEND)).all()
    # The fields after the name of the program, which is in brackets: utime and stime are the 14th and 15th of all.
    content = await asyncio.to_thread(Path(f"/proc/{pid}/stat").read_text)
    spent = content.rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def _figure(name: str, seconds: list[float], aim: str = "") -> Figure:
    rates = [LEASES / one for one in seconds]
    note = f"{min(rates):,.0f} to {max(rates):,.0f} in {len(rates)} rounds"
    return Figure(name, median(rates), "1/s", aim, note)
