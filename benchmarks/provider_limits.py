"""How close to the limits of providers three processes come together, and how they recover when a limit is halved.

Three processes with the guard, the shared budget and the adapters of production call emulated clouds that enforce their
limits, as fast as they are allowed to: each lists machines, orders them and ends them. After the steady part,
Hyperstack halves its limit without a word and without Retry-After, and then Verda does, which tells its limits with its
answers.
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
from control_plane.domain.ids import AccountName, ProviderRef, launch_key
from control_plane.world import uuid7
from providers import hyperstack, lambda_cloud, verda
from providers.base import LaunchOrder, ListedOffer, Provider, ProviderError, Throttled
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
LISTING, LEASING = 3, 3
"""Tasks of each process for each cloud: those that list its machines, and those that order and end one at a time."""
PER_MINUTE = {"lambda_cloud": 60, "hyperstack": 500, "verda": 120}
"""What each emulated cloud allows: all requests together, and at Verda the lists of machines, as each endpoint has a
limit of its own there."""
SECRET = "benchmark-key-0123456789"
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkb1KmdiBODAwt/gai8GFud7P/NXRX2z32ens9R9G93 benchmark"


@dataclass
class Count:
    """Requests of one cloud, as it saw them."""

    passed: int = 0
    """Of those that count for the limit in PER_MINUTE."""
    refused: int = 0
    """Of all."""
    ordered: int = 0
    """Machines."""


def _counts(name: str, method: str, path: str) -> bool:
    return name != "verda" or (method, path) in verda_limits.LISTS


def _is_order(name: str, method: str, path: str) -> bool:
    return method == "POST" and path == ORDERS[name]


ORDERS = {
    "lambda_cloud": "/api/v1/instance-operations/launch",
    "hyperstack": "/v1/core/virtual-machines",
    "verda": "/v1/instances",
}


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

        async def counting(
            scope: dict[str, str], receive: object, send: Callable[..., Awaitable[None]]
        ) -> None:
            method, path = scope["method"], scope["path"]

            async def counted(message: dict[str, object]) -> None:
                if message["type"] == "http.response.start":
                    count = self.counts[name]
                    if message["status"] == 429:
                        count.refused += 1
                    else:
                        count.passed += _counts(name, method, path)
                        count.ordered += _is_order(name, method, path)
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
            Figure(f"{phase}: {name}, machines ordered", count.ordered, "machines"),
        ]
    return figures


async def _work() -> None:
    """One process: as many calls as its guards allow, of every cloud."""
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
        guards = [
            Guard(provider, account=AccountName(name), now=utc_now, budget=budget)
            for name, provider in providers.items()
        ]
        # Before the lists, which take all turns that nobody with a higher priority wants.
        offers = await asyncio.gather(*map(_an_offer, guards))
        async with asyncio.TaskGroup() as group:
            for guard, offer in zip(guards, offers, strict=True):
                for _ in range(LISTING):
                    group.create_task(_lists(guard))
                for _ in range(LEASING):
                    group.create_task(_leases(guard, offer))


async def _lists(guard: Guard) -> None:
    end = time.monotonic() + 3_600
    while time.monotonic() < end:
        with suppress(Throttled):
            await guard.inventory()
            continue
        await asyncio.sleep(0.2)


async def _leases(guard: Guard, offer: ListedOffer) -> None:
    """Order a machine, end it, and again."""
    end = time.monotonic() + 3_600
    while time.monotonic() < end:
        order = LaunchOrder(
            launch_key("00000000", uuid7()),
            offer.native_type,
            offer.native_region,
            "#cloud-config\n",
            SSH_KEY,
        )
        try:
            ref = await guard.launch(order)
        except ProviderError:  # It had no turn.
            await asyncio.sleep(0.2)
        else:
            await _end(guard, ref)


async def _end(guard: Guard, ref: ProviderRef) -> None:
    while True:
        try:
            await guard.terminate(ref)
        except ProviderError:  # It had no turn, or the machine is too young.
            await asyncio.sleep(0.5)
        else:
            return


async def _an_offer(guard: Guard) -> ListedOffer:
    """The first machine with one GPU that is in stock."""
    while True:
        with suppress(ProviderError):
            found = [each for each in await guard.offers() if isinstance(each, ListedOffer)]
            return next(
                each for each in found if each.available and each.shape.gpu_count == 1 and not each.spot
            )
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(_work())
