"""5,000 open event streams on one API process, each of a lease of its own.

What they cost while nothing happens, how long a committed line takes to its client, and how long SIGTERM takes. The
writer is another process than the API; the clients, the writer, the server and PostgreSQL share the machine.
"""

import asyncio
import random
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlsplit

import psutil
from sqlalchemy import text

from benchmarks import api, ground, load
from benchmarks.results import Figure, percentile
from control_plane.db import journal
from control_plane.db.engine import Database, Role
from control_plane.db.rows import read
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.ids import LeaseId, Prefix, on_wire
from control_plane.domain.journal import Note
from control_plane.world import utc_now

STREAMS = 5_000
OPENING_AT_A_TIME = 64
IDLE_SECONDS = 30
EVENTS = 500
EVENTS_PER_SECOND = 50
AT_ONCE = 1_000
US = Actor(ActorKind.LOOP, "bench")
_LEASES = text("SELECT id FROM leases ORDER BY id")


class Client(asyncio.Protocol):
    """One stream. It notes when the next line arrives, and when the server has closed."""

    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._request = request
        self._rest = b""
        self.opened: asyncio.Future[None] = loop.create_future()
        self.line: asyncio.Future[float] = loop.create_future()
        self.closed: asyncio.Future[float] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._rest = (self._rest + data)[-4_096:]
        if not self.opened.done():
            if b"event: status" in self._rest:
                self._rest = b""
                self.opened.set_result(None)
        elif b'"why":"bench"' in self._rest and not self.line.done():
            self._rest = b""
            self.line.set_result(time.perf_counter())

    def connection_lost(self, _: Exception | None) -> None:
        self.closed.set_result(time.perf_counter())
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(self._rest.decode(errors="replace")))

    async def next_line(self) -> float:
        """When the next line came."""
        at = await asyncio.wait_for(self.line, 60)
        self.line = asyncio.get_running_loop().create_future()
        return at


async def measure() -> list[Figure]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    url = await ground.empty_database("bench_streams")
    bounds = {f"SPLITPLANE_STREAMS_{of}MAX": str(STREAMS) for of in ("", "PER_ORGANIZATION_", "PER_KEY_")}
    database = Database(url, role=Role.RECONCILER, pool_size=4, rings=True)
    async with ground.customer(url) as (world, organization_id, secret):
        await ground.order(world, organization_id, STREAMS)
        async with database.reading() as connection:
            leases = await read(connection, _LEASES, LeaseId)
        with api.started(url, **bounds) as (base, process):
            figures = await _measure(base, process, secret, database, leases)
    await database.close()
    return figures


async def _measure(
    base: str, process: subprocess.Popen[bytes], secret: str, database: Database, leases: Sequence[LeaseId]
) -> list[Figure]:
    processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    before = sum(process.memory_info().rss for process in processes)
    clients, opening = await _open(base, secret, leases)
    await asyncio.sleep(1)
    memory = (sum(process.memory_info().rss for process in processes) - before) / len(clients)
    idle = await _idle(processes)
    single = await _single(clients, database)
    together = await _together(clients, database)
    begun = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    closed = max([await client.closed for client in clients.values()]) - begun
    await asyncio.to_thread(process.wait, 30)
    return [
        Figure("streams opened", len(clients) / opening, "streams/s"),
        Figure("memory of the API process per stream", memory / 1_024, "KiB"),
        Figure("CPU of the API process while nothing happens", 100 * idle, "% of a core"),
        Figure("from commit to event at the client, p50", 1_000 * percentile(single, 0.50), "ms"),
        Figure("from commit to event at the client, p99", 1_000 * percentile(single, 0.99), "ms", "<= 200"),
        Figure(f"{AT_ONCE:,} leases in one commit, p50", 1_000 * percentile(together, 0.50), "ms"),
        Figure(f"{AT_ONCE:,} leases in one commit, the last", 1_000 * max(together), "ms"),
        Figure("from SIGTERM until every stream is closed", closed, "s", "<= 10"),
        Figure("from SIGTERM until the process has ended", time.perf_counter() - begun, "s", "<= 10"),
    ]


async def _open(base: str, secret: str, leases: Sequence[LeaseId]) -> tuple[dict[LeaseId, Client], float]:
    """A stream of each lease, and the seconds that it took to open all."""
    where, gate = urlsplit(base), asyncio.Semaphore(OPENING_AT_A_TIME)
    host, port = where.hostname or "", where.port or 0
    clients: dict[LeaseId, Client] = {}

    async def opened(lease: LeaseId) -> None:
        path = f"/v1/leases/{on_wire(Prefix.LEASE, lease)}/events"
        request = load.request(base, "GET", path, {"Authorization": f"Bearer {secret}"})
        async with gate:
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(lambda: Client(request), host, port)
            await asyncio.wait_for(client.opened, 60)
        clients[lease] = client

    begun = time.perf_counter()
    await asyncio.gather(*map(opened, leases))
    return clients, time.perf_counter() - begun


async def _idle(processes: Sequence[psutil.Process]) -> float:
    """The share of a core that the processes take while nothing happens but heartbeats."""
    before = sum(sum(process.cpu_times()[:2]) for process in processes)
    begun = time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    after = sum(sum(process.cpu_times()[:2]) for process in processes)
    return (after - before) / (time.perf_counter() - begun)


async def _single(clients: dict[LeaseId, Client], database: Database) -> list[float]:
    """Seconds from a commit to the client, of lines that are committed one by one."""
    chance, took = random.Random(1), []
    for lease in chance.sample(sorted(clients), EVENTS):
        committed = await _note(database, [lease])
        took.append(await clients[lease].next_line() - committed)
        await asyncio.sleep(1 / EVENTS_PER_SECOND)
    return took


async def _together(clients: dict[LeaseId, Client], database: Database) -> list[float]:
    """Seconds from one commit of many lines to each of the clients."""
    leases = sorted(clients)[:AT_ONCE]
    committed = await _note(database, leases)
    return [await clients[lease].next_line() - committed for lease in leases]


async def _note(database: Database, leases: Sequence[LeaseId]) -> float:
    """Write a line for each lease in one transaction. Returns when it was committed."""
    async with database.transaction() as connection:
        for lease in leases:
            await journal.note_lease(
                connection, lease, event=Note.CHANGED, why="bench", actor=US, now=utc_now()
            )
    return time.perf_counter()
