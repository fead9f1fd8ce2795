"""How close to the limits of providers three processes come together, and how they recover when a limit is halved.

Three processes with the guard, the shared budget and the adapters of production call emulated clouds that enforce their
limits, as fast as they are allowed to. After the steady part, Hyperstack halves its limit without a word and without
Retry-After, and then Verda does, which tells its limits with its answers.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import uvicorn

from benchmarks import ground
from benchmarks.results import Figure
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import AccountName
from providers import hyperstack, lambda_cloud, verda
from providers.base import Provider, Throttled
from providers.clock import utc_now
from providers.emulators.clouds import hyperstack as emulated_hyperstack
from providers.emulators.clouds import lambda_cloud as emulated_lambda
from providers.emulators.clouds import verda as emulated_verda
from providers.emulators.clouds import verda_limits
from providers.emulators.host import SimulatedHost
from providers.emulators.scenario import Scenario
from providers.guard import Guard
from reconciler.call_budgets import SharedBudget

STEADY_SECONDS = float(os.environ.get("STEADY_SECONDS", "300"))
HALVED_SECONDS = float(os.environ.get("HALVED_SECONDS", "180"))
PROCESSES = 3
PER_MINUTE = {"lambda_cloud": 60, "hyperstack": 500, "verda": 120}
"""What each emulated cloud allows for listings, which the processes ask for."""
SECRET = "benchmark-key-0123456789"


@dataclass
class Count:
    """Requests of one cloud, as it saw them."""

    passed: int = 0
    refused: int = 0


class Clouds:
    """The emulated clouds, served in this process."""

    def __init__(self) -> None:
        host = SimulatedHost(utc_now, 1.0)
        terms = emulated_lambda.Terms(api_key=SECRET)
        self.apps = {
            "lambda_cloud": emulated_lambda.create_app(host, Scenario(), now=utc_now, terms=terms),
            "hyperstack": emulated_hyperstack.create_app(host, Scenario(), now=utc_now, api_key=SECRET),
            "verda": emulated_verda.create_app(host, Scenario(), now=utc_now, api_key=SECRET),
        }
        self.counts = {name: Count() for name in self.apps}
        self.ports: dict[str, int] = {}

    def taken(self) -> dict[str, Count]:
        """The counts since this was asked last."""
        taken, self.counts = self.counts, {name: Count() for name in self.apps}
        return taken

    async def serve(self, name: str) -> uvicorn.Server:
        app = self.apps[name]

        async def counting(scope: object, receive: object, send: Callable[..., Awaitable[None]]) -> None:
            async def counted(message: dict[str, object]) -> None:
                if message["type"] == "http.response.start":
                    count = self.counts[name]
                    if message["status"] == 429:
                        count.refused += 1
                    else:
                        count.passed += 1
                await send(message)

            await app(scope, receive, counted)  # type: ignore[arg-type] # ASGI's types differ between the two

        config = uvicorn.Config(counting, port=0, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn offers no event to wait for
            await asyncio.sleep(0.01)
        self.ports[name] = server.servers[0].sockets[0].getsockname()[1]
        return server


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_provider_limits")
    clouds = Clouds()
    servers = [await clouds.serve(name) for name in clouds.apps]
    workers = [
        subprocess.Popen(  # noqa: ASYNC220 - starting a process takes a moment, and nothing else runs yet
            [sys.executable, "-m", "benchmarks.provider_limits"],
            env=os.environ
            | {"BENCH_DATABASE": ground.login_url(url, Role.RECONCILER)}
            | {f"BENCH_{name}": str(port) for name, port in clouds.ports.items()},
        )
        for _ in range(PROCESSES)
    ]
    try:
        await asyncio.sleep(5)
        clouds.taken()
        steady = await _measured(clouds, STEADY_SECONDS)
        clouds.apps["hyperstack"].state.limiter.requests_per_minute //= 2
        after_hyperstack = await _measured(clouds, HALVED_SECONDS)
        verda_limits.REQUESTS_OF_LISTS //= 2
        after_verda = await _measured(clouds, HALVED_SECONDS)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(20)
        for server in servers:
            server.should_exit = True
    return [
        *_figures("steady", steady, STEADY_SECONDS, {}),
        *_figures("Hyperstack halved", after_hyperstack, HALVED_SECONDS, {"hyperstack": 0.5}),
        *_figures("Verda halved too", after_verda, HALVED_SECONDS, {"hyperstack": 0.5, "verda": 0.5}),
    ]


async def _measured(clouds: Clouds, seconds: float) -> dict[str, Count]:
    await asyncio.sleep(seconds)
    return clouds.taken()


def _figures(phase: str, counts: dict[str, Count], seconds: float, left: dict[str, float]) -> list[Figure]:
    figures = []
    for name, count in counts.items():
        used = 100 * count.passed / (PER_MINUTE[name] * left.get(name, 1.0) * seconds / 60)
        aims = (">= 80", "<= 0") if phase == "steady" else ("", "")
        figures += [
            Figure(f"{phase}: {name}, of what is allowed", used, "%", aims[0]),
            Figure(f"{phase}: {name}, throttled", count.refused, "calls", aims[1]),
        ]
    return figures


async def _work() -> None:
    """One process: as many listings as its guards allow, of every cloud."""
    port = {name: os.environ[f"BENCH_{name}"] for name in PER_MINUTE}
    async with AsyncExitStack() as closing:
        db = Database(os.environ["BENCH_DATABASE"], role=Role.RECONCILER, pool_size=6, readers=2)
        closing.push_async_callback(db.close)
        budget = SharedBudget(db, utc_now)
        providers: dict[str, Provider] = {
            "lambda_cloud": lambda_cloud.connect(
                lambda_cloud.Settings(SECRET, f"http://127.0.0.1:{port['lambda_cloud']}/api/v1")
            ),
            "hyperstack": hyperstack.connect(
                hyperstack.Settings(SECRET, f"http://127.0.0.1:{port['hyperstack']}/v1")
            ),
            "verda": verda.connect(
                verda.Settings(emulated_verda.CLIENT_ID, SECRET, f"http://127.0.0.1:{port['verda']}/v1")
            ),
        }
        async with asyncio.TaskGroup() as group:
            for name, provider in providers.items():
                guard = Guard(provider, account=AccountName(name), now=utc_now, budget=budget)
                for _ in range(4):
                    group.create_task(_lists(guard))


async def _lists(guard: Guard) -> None:
    end = time.monotonic() + 3_600
    while time.monotonic() < end:
        with suppress(Throttled):
            await guard.inventory()
            continue
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(_work())
