"""A verifier service in this process, whose workers follow a script, and a client of it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from data_plane.proof.verifier.jobs import LaunchJob
from data_plane.proof.verifier.service import codec
from data_plane.proof.verifier.service.client import RemoteVerifier, connect
from data_plane.proof.verifier.service.metrics import Metrics
from data_plane.proof.verifier.service.server import VerifierServer
from data_plane.proof.verifier.service.settings import ClientSettings, ServerSettings
from tests.integration.data_plane.proof.verifier import odd_worker

ODD_WORKER = (sys.executable, "-m", odd_worker.__name__)
SETTINGS = ServerSettings(
    listen="127.0.0.1:0",
    metrics_listen=("127.0.0.1", 0),
    tls=None,
    workers=1,
    queue_max=codec.JOBS_MAX,
    batch_seconds_max=60,
    drain_seconds=20,
)


def job(behaviour: int) -> LaunchJob:
    return LaunchJob(bytes(16), behaviour, bytes(16))


async def until(holds: Callable[[], object]) -> None:
    """Run the event loop until `holds`, because real processes take real time."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.005)


@dataclass
class Service:
    server: VerifierServer
    metrics: Metrics
    verifier: RemoteVerifier
    address: str

    def figure(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"splitplane_verifier_{name}", labels) or 0.0

    async def running(self, jobs: int) -> None:
        await until(lambda: self.figure("running_jobs") == jobs)


@asynccontextmanager
async def served(
    settings: ServerSettings = SETTINGS, *, seconds: float = 30, client: ClientSettings | None = None
) -> AsyncIterator[Service]:
    metrics = Metrics()
    server = VerifierServer(settings, metrics, command=ODD_WORKER)
    await server.start()
    address = f"127.0.0.1:{server.port}" if server.port > 1 else settings.listen
    wanted = client or ClientSettings((address,), tls=None, name=None, seconds=seconds)
    verifier = connect(replace(wanted, addresses=(address,)))
    try:
        yield Service(server, metrics, verifier, address)
    finally:
        await verifier.close()
        await server.drain()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[Service]]]:
    """Starts services with other settings; all of them stop with the test."""
    async with AsyncExitStack() as stack:

        async def start(
            seconds: float = 30, client: ClientSettings | None = None, **changes: object
        ) -> Service:
            settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
            return await stack.enter_async_context(served(settings, seconds=seconds, client=client))

        yield start
