"""Usage events and rated lines a second: 10,000 running leases of 100 customers, hour by hour.

An event is an hour of a lease, from the journal to the ledger: `meter_usage` stores its interval, and `rate_usage` its
charge, the posting and the use of the hold. Each loop runs by itself and to the end, as one replica on one connection,
with durable commits.
"""

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from benchmarks import ground, used_leases
from benchmarks.results import Figure, median
from benchmarks.used_leases import LEASES, MONTH, Clock
from reconciler.world import World

HOURS = 5


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_metering")
    clock = Clock(MONTH)
    await used_leases.customers(url, clock.now)
    await used_leases.plant(url)
    world = used_leases.loop_world(url, clock.now)
    metered, rated = [], []
    for hour in range(1, HOURS + 2):
        clock.time = MONTH + timedelta(hours=hour, minutes=1)
        await used_leases.listed(world)
        metered.append(await _seconds(world, used_leases.meter))
        rated.append(await _seconds(world, used_leases.rate))
        if hour == 1:
            await used_leases.analyze(url)
    await world.db.close()
    # In the first hour, tables are empty, statements are prepared and connections opened.
    metered, rated = metered[1:], rated[1:]
    both = [a + b for a, b in zip(metered, rated, strict=True)]
    return [
        _figure("intervals metered", metered),
        _figure("lines rated and posted", rated),
        _figure("usage events, metered and rated", both, ">= 5000"),
    ]


async def _seconds(world: World, run: Callable[[World], Awaitable[int]]) -> float:
    begun = time.perf_counter()
    done = await run(world)
    if done != LEASES:
        raise RuntimeError(f"{done} intervals instead of {LEASES}")
    return time.perf_counter() - begun


def _figure(name: str, seconds: list[float], aim: str = "") -> Figure:
    rates = [LEASES / one for one in seconds]
    note = f"{min(rates):,.0f} to {max(rates):,.0f} in {len(rates)} rounds"
    return Figure(name, median(rates), "1/s", aim, note)
