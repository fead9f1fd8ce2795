"""`python -m benchmarks telemetry`: what 10,000 machines with 8 GPUs send every 15 s, and the backlog of an hour.

The ingest process, a durable PostgreSQL and a load generator share the machine, so CPU seconds are shown beside times:
other load slows the clock and hardly changes them. The generator sends as agents do, over kept connections, at the
moments at which the machines would: it does not wait for answers before it sends for the next machine.
"""

import asyncio
import gzip
import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import asyncpg
import psutil

from benchmarks import ground
from benchmarks.results import Figure, percentile
from control_plane.db.engine import Role
from data_plane.documents.sample import SECONDS, Sample
from data_plane.documents.sample_delivery import PATH, SAMPLES_MAX, Delivery, encode_delivery
from tests.support.samples import busy_sample

MACHINES = 10_000
GPUS = 8
ROUNDS = 4
"""Samples of each machine: a minute."""
BACKLOGGED = 100
"""Machines that deliver an hour's backlog."""
BACKLOG = 3600 // SECONDS
CONNECTIONS = 128
BODIES = 25
"""Different bodies of a round: machines share them, and are told apart by their credentials."""


def credential(number: int) -> str:
    return f"{number:064x}"


async def _fill(url: str) -> None:
    """Claims and agents alone: the ingest process looks at nothing else."""
    connection = await asyncpg.connect(url)
    organization, project = (f"00000000-0000-0000-0000-00000000000{letter}" for letter in "ab")
    await connection.execute("SET session_replication_role = replica")
    ids = f"md5('c' || n)::uuid, '{organization}'::uuid, md5('l' || n)::uuid, md5('m' || n)::uuid, now()"
    digest = "encode(sha256(convert_to(lpad(to_hex(n), 64, '0'), 'UTF8')), 'hex')"
    for table, columns, rows in (
        (
            "claims",
            "id, organization_id, lease_id, machine_id, claimed_at, project_id, due_at, attempt",
            f"SELECT {ids}, '{project}'::uuid, now(), 1",
        ),
        (
            "agents",
            "claim_id, organization_id, lease_id, machine_id, due_at, digest",
            f"SELECT {ids}, {digest}",
        ),
    ):
        await connection.execute(
            f"INSERT INTO {table} ({columns}) {rows} FROM generate_series(1, {MACHINES}) n"
        )
    assert hashlib.sha256(credential(1).encode()).hexdigest() == await connection.fetchval(
        "SELECT digest FROM agents WHERE machine_id = md5('m1')::uuid"
    )
    await connection.execute("ANALYZE agents, claims")
    await connection.close()


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _ingest(url: str) -> Iterator[tuple[int, psutil.Process]]:
    port, metrics = _port(), _port()
    process = subprocess.Popen(
        [sys.executable, "-m", "control_plane.ingest"],
        env={
            "PATH": os.environ["PATH"],
            "SPLITPLANE_DATABASE_URL": url,
            "SPLITPLANE_INGEST_LISTEN": f"127.0.0.1:{port}",
            "SPLITPLANE_INGEST_METRICS_LISTEN": f"127.0.0.1:{metrics}",
            "SPLITPLANE_LOG_LEVEL": "error",
        },
    )
    try:
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


async def _ready(port: int) -> None:
    for _ in range(600):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        if b" 200 " in answer.split(b"\r\n")[0]:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


class Senders:
    """Kept connections to the ingest process; each carries one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self.statuses: dict[int, int] = {}
        self.seconds: list[float] = []

    async def open(self) -> None:
        for _ in range(CONNECTIONS):
            self._free.put_nowait(await asyncio.open_connection("127.0.0.1", self._port))

    async def send(self, number: int, body: bytes, due: float | None = None) -> int:
        """Send for one machine. `due` is when its sample was read: its time counts from then."""
        began = time.perf_counter() if due is None else due
        reader, writer = await self._free.get()
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: ingest\r\nAuthorization: Bearer {credential(number)}\r\n"
            f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        self._free.put_nowait((reader, writer))
        status = int(answer[9:12])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.seconds.append(time.perf_counter() - began)
        return status

    async def close(self) -> None:
        while not self._free.empty():
            self._free.get_nowait()[1].close()


def _bodies(sequence: int) -> list[bytes]:
    found = []
    for variety in range(BODIES):
        sample = replace(busy_sample(1_000 * sequence + variety, gpus=GPUS), sequence=sequence)
        found.append(encode_delivery(Delivery(sample.at_ms, (sample,))))
    return found


class Cpu:
    """CPU seconds of the ingest process and of PostgreSQL, with processes that ended meanwhile left out."""

    def __init__(self, ingest: psutil.Process) -> None:
        self._ingest = ingest
        self._before = self._read()

    def used(self) -> tuple[float, float]:
        now = self._read()
        return now[0] - self._before[0], now[1] - self._before[1]

    def _read(self) -> tuple[float, float]:
        processes = [self._ingest, *self._ingest.children(recursive=True)]
        ingest = sum(sum(process.cpu_times()[:2]) for process in processes)
        postgres = 0.0
        server = psutil.Process(ground.postmaster())
        for process in (server, *server.children()):
            try:
                postgres += sum(process.cpu_times()[:2])
            except psutil.NoSuchProcess:
                continue
        return ingest, postgres


async def _steady(port: int, ingest: psutil.Process) -> list[Figure]:
    """Every machine sends a sample every 15 s, at its own moment."""
    senders = Senders(port)
    await senders.open()
    bodies = [_bodies(round_) for round_ in range(1, ROUNDS + 1)]
    order = list(range(1, MACHINES + 1))
    random.Random(1).shuffle(order)
    cpu = Cpu(ingest)
    began = time.perf_counter()
    tasks: set[asyncio.Task[int]] = set()
    late = 0.0
    for round_ in range(ROUNDS):
        for place, number in enumerate(order):
            due = began + SECONDS * (round_ + place / MACHINES)
            ahead = due - time.perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            late = max(late, -ahead)
            task = asyncio.create_task(senders.send(number, bodies[round_][number % BODIES], due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    seconds = time.perf_counter() - began
    of_ingest, of_postgres = cpu.used()
    await senders.close()
    sent = MACHINES * ROUNDS
    said = f"answers {senders.statuses}; the generator was {late:.1f} s late at most"
    return [
        Figure("samples a second, 10,000 machines every 15 s", sent / seconds, "samples/s", note=said),
        Figure("CPU of the ingest process for it", of_ingest / seconds, "cores"),
        Figure("CPU of PostgreSQL for it", of_postgres / seconds, "cores"),
        Figure("CPU for one sample, of both", 1e6 * (of_ingest + of_postgres) / sent, "us"),
        Figure(
            "real time that both need for 15 s of all machines, on one core",
            SECONDS * (of_ingest + of_postgres) / (sent / MACHINES * SECONDS),
            "s",
            "<= 15",
        ),
        Figure("sample to visible, p50", percentile(senders.seconds, 0.5), "s"),
        Figure("sample to visible, p99", percentile(senders.seconds, 0.99), "s", "<= 10"),
    ]


def _backlog() -> list[bytes]:
    """An hour of a machine, in deliveries as large as they may be."""
    found: list[bytes] = []
    first: list[Sample] = [replace(busy_sample(n % 40, gpus=GPUS), sequence=100 + n) for n in range(BACKLOG)]
    for start in range(0, BACKLOG, SAMPLES_MAX):
        part = first[start : start + SAMPLES_MAX]
        for size in (len(part), len(part) // 2):
            halves = [part[n : n + size] for n in range(0, len(part), size)]
            bodies = [encode_delivery(Delivery(half[0].at_ms, tuple(half))) for half in halves]
            if (
                max(map(len, bodies)) <= 128 * 1024
                and max(len(gzip.decompress(body)) for body in bodies) <= 1 << 20
            ):
                found += bodies
                break
    return found


async def _replay(port: int, ingest: psutil.Process) -> list[Figure]:
    """Machines deliver an hour's backlog, each one delivery after the other, all at the same time."""
    senders = Senders(port)
    await senders.open()
    backlog = _backlog()
    cpu = Cpu(ingest)
    began = time.perf_counter()

    async def machine(number: int) -> None:
        for body in backlog:
            while True:
                if await senders.send(number, body) == 200:
                    break
                await asyncio.sleep(1)

    await asyncio.gather(*(machine(number) for number in range(1, BACKLOGGED + 1)))
    seconds = time.perf_counter() - began
    of_ingest, of_postgres = cpu.used()
    await senders.close()
    sent = BACKLOGGED * BACKLOG
    real = MACHINES / SECONDS
    return [
        Figure(
            f"an hour's backlog of {BACKLOGGED} machines", seconds, "s", note=f"answers {senders.statuses}"
        ),
        Figure("samples a second of the backlog", sent / seconds, "samples/s"),
        Figure("rate of the backlog to that of 10,000 machines", sent / seconds / real, "times", ">= 1"),
        Figure("CPU for one sample of the backlog, of both", 1e6 * (of_ingest + of_postgres) / sent, "us"),
    ]


@asynccontextmanager
async def _served() -> AsyncIterator[tuple[int, psutil.Process, str]]:
    url = await ground.empty_database("telemetry")
    await _fill(url)
    with _ingest(ground.login_url(url, Role.INGEST)) as (port, process):
        await _ready(port)
        yield port, process, url


async def measure() -> list[Figure]:
    async with _served() as (port, process, url):
        figures = await _steady(port, process)
        for figure in figures:
            print(f"  {figure.name}: {figure.value:,.3f} {figure.unit}  {figure.note}", flush=True)
        figures += await _replay(port, process)
    connection = await asyncpg.connect(url)
    stored = await connection.fetchval("SELECT count(*) FROM samples")
    bytes_ = await connection.fetchval(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid"
        " WHERE i.inhparent = 'samples'::regclass"
    )
    await connection.close()
    load = json.dumps([round(one, 1) for one in os.getloadavg()])
    return [
        *figures,
        Figure("samples stored, each once", stored, "samples", note=f"load of the machine {load}"),
        Figure("bytes of a stored sample, with its indexes", float(bytes_) / stored, "bytes"),
    ]
