"""What other customers notice of an attack from one address: connections that never finish their request.

    python -m benchmarks.attack [--connections 8000] [--seconds 10]

Starts an embedded PostgreSQL and the real API, and measures a customer who lists leases with four connections: alone,
and beside half-sent heads, half-sent bodies (of another organization's key) and clients that ask for a list and never
read it. Connections that the server closes are opened again after some seconds. The customer, a process of its
own, opens a connection for each request, so the time to connect counts.
Prints a table and one line of JSON. All processes share the machine.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import httpx
import psutil

from benchmarks import ground
from benchmarks.api_server import METRICS_PORT, PORT, http, prepare
from control_plane.db import embedded
from control_plane.db.engine import Role as DatabaseRole

CUSTOMER_CONNECTIONS = 4
AGAIN_SECONDS = 5
"""After which a connection that was closed is opened again. Sooner is a flood of requests, which is another attack."""
FEWER_CONNECTIONS = 1_100
"""Of the attacks whose requests reach the app. So many stopped the API before it had bounds."""


@dataclass
class Figure:
    attack: str
    connections: int
    per_second: int
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    errors: int
    server_mb: float
    """Memory of the API's processes during the attack."""


async def customer(request: bytes, seconds: float) -> tuple[list[float], int]:
    """Requests one after the other, each on a connection of its own: their times, and how many failed."""
    times, errors, until = [], 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
                writer.write(request)
                answer = await reader.readuntil(b"\r\n")
                writer.close()
            errors += answer[9:12] != b"200"
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            errors += 1
        times.append(time.perf_counter() - started)
    return times, errors


def customers(request: bytes, seconds: float) -> list[tuple[list[float], int]]:
    async def together() -> list[tuple[list[float], int]]:
        return await asyncio.gather(*(customer(request, seconds) for _ in range(CUSTOMER_CONNECTIONS)))

    return asyncio.run(together())


async def held(sent: bytes, *, reads: bool) -> None:
    """One hostile connection, opened again whenever it is closed."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            try:
                writer.write(sent)
                if reads:
                    await reader.read()
                else:
                    writer.transport.pause_reading()  # type: ignore[attr-defined] # asyncio types it as a write transport; a socket reads too
                    await asyncio.sleep(3_600)
            finally:
                writer.close()
        await asyncio.sleep(AGAIN_SECONDS)


@asynccontextmanager
async def attacked(sent: bytes, count: int, *, reads: bool) -> AsyncIterator[None]:
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(held(sent, reads=reads)))
        if number % 200 == 0:
            await asyncio.sleep(0.05)  # The backlog of a listening socket is finite.
    await asyncio.sleep(2)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def memory_mb(server: psutil.Process) -> float:
    found = 0.0
    for process in [server, *server.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.memory_info().rss / 1e6
    return round(found, 1)


async def measure(
    name: str, sent: bytes, count: int, *, request: bytes, server: psutil.Process, seconds: float, reads: bool
) -> Figure:
    async with attacked(sent, count, reads=reads):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(apart, customers, request, seconds)
        memory = memory_mb(server)
    times = sorted(second for those, _ in found for second in those)
    return Figure(
        name,
        count,
        round(len(times) / seconds),
        round(times[len(times) // 2] * 1e3, 1),
        round(times[len(times) * 99 // 100] * 1e3, 1),
        round(times[-1] * 1e3, 1),
        sum(errors for _, errors in found),
        memory,
    )


async def measure_all(url: str, server: psutil.Process, arguments: argparse.Namespace) -> list[Figure]:
    good, hostile = await prepare(url), await prepare(url)
    order = b'{"sku": "l4.1x", "ssh_key_ids": []}'
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {hostile}"}) as client:
        for _ in range(50):
            await client.post(f"http://127.0.0.1:{PORT}/v1/leases", content=order)
    attacks = {
        "none": (b"", 0, True),
        "half-sent heads": (b"GET / HTTP/1.1\r\nHost: x\r\nX-", arguments.connections, True),
        "half-sent bodies": (
            http("POST", "/v1/leases", hostile, b"{" + b" " * 100)[:-50],
            FEWER_CONNECTIONS,
            True,
        ),
        "no reader": (
            http("GET", "/v1/leases?limit=200", hostile) * 2,
            FEWER_CONNECTIONS,
            False,
        ),
    }
    return [
        await measure(
            name,
            sent,
            count,
            request=http("GET", "/v1/leases?limit=20", good),
            server=server,
            seconds=arguments.seconds,
            reads=reads,
        )
        for name, (sent, count, reads) in attacks.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=8_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--directory", default=str(Path(tempfile.gettempdir()) / "splitplane-bench-pg"))
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    url = embedded.start(Path(arguments.directory))
    environment = os.environ | {
        "SPLITPLANE_DATABASE_URL": ground.login_url(url, DatabaseRole.API),
        "SPLITPLANE_LISTEN": f"127.0.0.1:{PORT}",
        "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{METRICS_PORT}",
        # The customer's own rate is not what is measured.
        "SPLITPLANE_REQUESTS_PER_SECOND": "5000",
        "SPLITPLANE_ORGANIZATION_REQUESTS_PER_SECOND": "5000",
        "SPLITPLANE_REQUESTS_BURST": "5000",
        "SPLITPLANE_ORGANIZATION_REQUESTS_BURST": "5000",
    }
    try:
        figures = asyncio.run(_served(url, environment, arguments))
    finally:
        embedded.stop(Path(arguments.directory))
    print(
        f"{'attack':18}{'connections':>12}{'per second':>11}{'p50 ms':>8}{'p99 ms':>9}{'slowest':>9}"
        f"{'errors':>8}{'MB':>7}"
    )
    for figure in figures:
        print(
            f"{figure.attack:18}{figure.connections:12}{figure.per_second:11}{figure.p50_ms:8}{figure.p99_ms:9}"
            f"{figure.slowest_ms:9}{figure.errors:8}{figure.server_mb:7}"
        )
    print(json.dumps([asdict(figure) for figure in figures]))


async def _served(url: str, environment: dict[str, str], arguments: argparse.Namespace) -> list[Figure]:
    await prepare(url)
    started = subprocess.Popen(  # noqa: ASYNC220 - starting takes milliseconds
        [sys.executable, "-m", "control_plane", "serve"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        async with httpx.AsyncClient() as client:
            for _ in range(100):
                with suppress(httpx.TransportError):
                    if (await client.get(f"http://127.0.0.1:{PORT}/readyz")).is_success:
                        break
                await asyncio.sleep(0.2)
        return await measure_all(url, psutil.Process(started.pid), arguments)
    finally:
        started.send_signal(signal.SIGTERM)
        await asyncio.to_thread(started.wait, 30)


if __name__ == "__main__":
    main()
