"""How many requests one API process answers: authenticated lease lists and lease creates over loopback.

    python -m benchmarks.api_server [--server granian --server uvicorn] [--seconds 5] [--cpus 0,1]

Starts an embedded PostgreSQL (durable), the real server as its own process with the real handlers,
and a client that keeps one request in flight per connection. All three share the given CPUs.
Prints a table and one line of JSON. On a machine with other work, CPU microseconds per request
vary less than rates.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import httpx
import psutil
import uvloop

from benchmarks import ground
from control_plane.db import embedded
from control_plane.db.engine import Role as DatabaseRole
from control_plane.db.migrate import migrate
from control_plane.domain.money import Nano
from control_plane.services import administration, process

PORT, METRICS_PORT = 18_080, 18_090
SKU = "l4.1x"


@dataclass
class Figure:
    server: str
    scenario: str
    per_second: int
    p50_ms: float
    p99_ms: float
    server_us: int
    """CPU time of the API process per request, in microseconds."""
    database_us: int
    errors: int


class Client(asyncio.Protocol):
    """One connection with one request in flight. It knows just enough HTTP to find the end of an answer."""

    def __init__(self, request: bytes, expected: int, until: float) -> None:
        self.request, self.expected, self.until = request, expected, until
        self.buffer = b""
        self.times: list[float] = []
        self.errors = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.next()

    def next(self) -> None:
        self.asked = time.perf_counter()
        if self.asked >= self.until:
            self.transport.close()
            return
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.buffer.lower().find(b"content-length: ", 0, head)
        length = int(self.buffer[at + 16 : self.buffer.find(b"\r", at)])
        if len(self.buffer) < head + 4 + length:
            return
        self.times.append(time.perf_counter() - self.asked)
        self.errors += int(self.buffer[9:12]) != self.expected
        self.buffer = b""
        self.next()

    def connection_lost(self, _: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def load(request: bytes, expected: int, *, connections: int, seconds: float) -> list[Client]:
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    made = [
        await loop.create_connection(lambda: Client(request, expected, until), "127.0.0.1", PORT)
        for _ in range(connections)
    ]
    clients = [client for _, client in made]
    await asyncio.wait_for(asyncio.gather(*(client.done for client in clients)), seconds + 30)
    return clients


def cpu_seconds(parent: psutil.Process) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in [parent, *parent.children(recursive=True)])


def measure(
    name: str,
    *,
    scenario: str,
    request: bytes,
    expected: int,
    server: psutil.Process,
    arguments: argparse.Namespace,
) -> Figure:
    postgres = psutil.Process(int((Path(arguments.directory) / "postmaster.pid").read_text().split()[0]))

    def run(seconds: float) -> list[Client]:
        return uvloop.run(load(request, expected, connections=arguments.connections, seconds=seconds))

    run(1.0)
    before = cpu_seconds(server), cpu_seconds(postgres)
    clients = run(arguments.seconds)
    after = cpu_seconds(server), cpu_seconds(postgres)
    times = sorted(second for client in clients for second in client.times)
    each = [round((b - a) * 1e6 / len(times)) for a, b in zip(before, after, strict=True)]
    return Figure(
        name,
        scenario,
        round(len(times) / arguments.seconds),
        round(times[len(times) // 2] * 1e3, 2),
        round(times[len(times) * 99 // 100] * 1e3, 2),
        each[0],
        each[1],
        sum(client.errors for client in clients),
    )


async def prepare(url: str) -> str:
    await migrate(url)
    await ground.make_logins(url)
    book = (Path(__file__).parent.parent / "control_plane/price_book.toml").read_text()
    name = f"bench-{time.time_ns()}"
    async with process.administrator(url) as world:
        await administration.load_price_book(world, book)
        made = await administration.bootstrap(world, name, top_up=Nano(10**15), gpu_quota=1_000_000)
    assert isinstance(made, administration.FirstOrganization)
    return made.issued.secret


def http(method: str, path: str, secret: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def command(name: str) -> list[str]:
    if name == "granian":
        return [sys.executable, "-m", "control_plane", "serve"]
    target = ["uvicorn", "--factory", "--loop", "uvloop", "--no-access-log", "--log-level", "warning"]
    address = ["--host", "127.0.0.1", "--port", str(PORT)]
    return [sys.executable, "-m", *target, *address, "control_plane.api.server:application"]


def against(name: str, url: str, arguments: argparse.Namespace) -> list[Figure]:
    secret = asyncio.run(prepare(url))
    environment = os.environ | {
        "SPLITPLANE_DATABASE_URL": ground.login_url(url, DatabaseRole.API),
        "SPLITPLANE_LISTEN": f"127.0.0.1:{PORT}",
        "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{METRICS_PORT}",
        "SPLITPLANE_REQUESTS_PER_SECOND": "1000000",
        "SPLITPLANE_REQUESTS_BURST": "1000000",
        "SPLITPLANE_ORGANIZATION_REQUESTS_PER_SECOND": "1000000",
        "SPLITPLANE_ORGANIZATION_REQUESTS_BURST": "1000000",
        "SPLITPLANE_ANONYMOUS_REQUESTS_PER_SECOND": "1000000",
    }
    with Path(os.devnull).open("wb") as nowhere:
        started = subprocess.Popen(command(name), env=environment, stderr=nowhere)
    try:
        for _ in range(100):
            try:
                httpx.get(f"http://127.0.0.1:{PORT}/readyz").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        server = psutil.Process(started.pid)
        order = json.dumps({"sku": SKU, "ssh_key_ids": []}).encode()
        for _ in range(20):
            headers = {"Authorization": f"Bearer {secret}"}
            httpx.post(
                f"http://127.0.0.1:{PORT}/v1/leases", json={"sku": SKU, "ssh_key_ids": []}, headers=headers
            )
        figures = [
            measure(
                name,
                scenario=scenario,
                request=http(*request),
                expected=status,
                server=server,
                arguments=arguments,
            )
            for scenario, request, status in (
                ("healthz", ("GET", "/healthz", secret), 200),
                ("one lease listed", ("GET", "/v1/leases?limit=1", secret), 200),
                ("20 leases listed", ("GET", "/v1/leases?limit=20", secret), 200),
                ("lease created", ("POST", "/v1/leases", secret, order), 202),
                ("200 leases listed", ("GET", "/v1/leases?limit=200", secret), 200),
            )
            if arguments.only is None or arguments.only in scenario
        ]
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(20)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", action="append", choices=["uvicorn", "granian"])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--cpus", default="0,1")
    parser.add_argument("--only", help="only scenarios with this in their name")
    parser.add_argument("--directory", default=str(Path(tempfile.gettempdir()) / "splitplane-bench-pg"))
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {int(cpu) for cpu in arguments.cpus.split(",")})

    url = embedded.start(Path(arguments.directory))
    try:
        figures = [one for name in arguments.server or ["granian"] for one in against(name, url, arguments)]
    finally:
        embedded.stop(Path(arguments.directory))
    print(
        f"{'server':9}{'scenario':20}{'per second':>11}{'p50 ms':>9}{'p99 ms':>9}{'API us':>8}{'PG us':>7}{'errors':>8}"
    )
    for one in figures:
        print(
            f"{one.server:9}{one.scenario:20}{one.per_second:11}{one.p50_ms:9}{one.p99_ms:9}"
            f"{one.server_us:8}{one.database_us:7}{one.errors:8}"
        )
    print(json.dumps([asdict(one) for one in figures]))


if __name__ == "__main__":
    main()
