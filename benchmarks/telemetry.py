"""`python -m benchmarks telemetry`: what 10,000 machines with 8 GPUs send every 15 s, and the backlog of an hour.

The ingest process, an API process, a durable PostgreSQL and a load generator share the machine, so CPU seconds are
shown beside times: other load slows the clock and hardly changes them. The generator sends as agents do, over kept
connections, at the moments at which the machines would: it does not wait for answers before it sends for the next
machine.

A sample is visible when `GET /v1/leases/{id}/metrics` shows it: the leases of one customer are asked for again and
again, from the moment at which a sample was read. `BENCH_BACKLOG_MACHINES` says how many machines deliver a backlog as
agents do, 16 samples with each new one, while all of them go on sending.
"""

import asyncio
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import asyncpg
import psutil

from benchmarks import ground, used_leases
from benchmarks.results import Figure, percentile
from benchmarks.telemetry_readers import Customer, Readers, api, key_of, visible
from control_plane.db.engine import Role
from control_plane.domain.ids import LeaseId, OrganizationId, Prefix, on_wire
from data_plane.agent.sampling import REPLAYED_MAX
from data_plane.documents.sample import SECONDS, Sample
from data_plane.documents.sample_delivery import PATH, SAMPLES_MAX, Delivery, encode_delivery
from demo.ports import free_port
from tests.support.samples import busy_sample

MACHINES = used_leases.LEASES
GPUS = 8
ROUNDS = 4
"""Samples of each machine: a minute."""
BACKLOGGED = 100
"""Machines that deliver an hour's backlog as fast as it is taken."""
REPLAYING = int(os.environ.get("BENCH_BACKLOG_MACHINES", "1000"))
"""Machines that deliver one as agents do."""
BACKLOG = 3600 // SECONDS
CONNECTIONS = 128
BODIES = 25
"""Different bodies of a round: machines share them, and are told apart by their credentials."""


def credential(number: int) -> str:
    return f"{number:064x}"


_AGENTS = """
INSERT INTO agents (claim_id, organization_id, lease_id, machine_id, due_at, digest)
SELECT id, organization_id, lease_id, machine_id, now(),
  encode(sha256(convert_to(lpad(to_hex(row_number() OVER (ORDER BY id)), 64, '0'), 'UTF8')), 'hex') FROM claims
"""
_WHOSE = """
SELECT row_number() OVER (ORDER BY id) AS number, organization_id, lease_id, machine_id FROM claims ORDER BY id
"""


async def _fill(url: str) -> Customer:
    """Customers with running leases, and the agents of their machines. Returns the first of the customers."""
    await used_leases.customers(url, used_leases.Clock(used_leases.MONTH).now)
    await used_leases.plant(url)
    connection = await asyncpg.connect(url)
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(_AGENTS)
    found = await connection.fetch(_WHOSE)
    assert hashlib.sha256(credential(1).encode()).hexdigest() == await connection.fetchval(
        "SELECT digest FROM agents WHERE machine_id = $1", found[0]["machine_id"]
    )
    await connection.close()
    await used_leases.analyze(url)
    whose = OrganizationId(found[0]["organization_id"])
    return Customer(
        await key_of(url, whose),
        {
            row["number"]: on_wire(Prefix.LEASE, LeaseId(row["lease_id"]))
            for row in found
            if row["organization_id"] == whose
        },
    )


@contextmanager
def _ingest(url: str) -> Iterator[tuple[int, psutil.Process]]:
    port, metrics = free_port(), free_port()
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
        """How long each took that was accepted."""

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


@dataclass(frozen=True)
class _Body:
    """A delivery of one sample, and what tells that sample from others where it is shown."""

    content: bytes
    shown: tuple[int | None, ...]


def _bodies(sequence: int) -> list[_Body]:
    found = []
    for variety in range(BODIES):
        sample = replace(busy_sample(1_000 * sequence + variety, gpus=GPUS), sequence=sequence)
        content = encode_delivery(Delivery(sample.at_ms, (sample,)))
        found.append(_Body(content, tuple(gpu.memory_used_mib for gpu in sample.gpus)))
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


Sent = Callable[[int, int, float], Awaitable[object]]
"""What a machine sends in a round: its number, the round, and when its sample is read."""


async def _rounds(bodies: Sequence[Sequence[_Body]], readers: Readers, send: Sent) -> float:
    """Every machine sends in each round of 15 s, at its own moment. Returns how late that was at most, in seconds."""
    order = list(range(1, MACHINES + 1))
    random.Random(1).shuffle(order)
    began, late = time.perf_counter(), 0.0
    tasks: set[asyncio.Task[object]] = set()

    def go(work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for round_ in range(len(bodies)):
        for place, number in enumerate(order):
            due = began + SECONDS * (round_ + place / MACHINES)
            ahead = due - time.perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            late = max(late, -ahead)
            go(send(number, round_, due))
            if number in readers.customer.leases:
                later = {each[number % BODIES].shown for each in bodies[round_:]}
                go(readers.until_seen(number, due, later))
    await asyncio.gather(*tasks)
    return late


async def _steady(port: int, readers: Readers, ingest: psutil.Process) -> list[Figure]:
    """Every machine sends a sample every 15 s."""
    senders = Senders(port)
    await senders.open()
    bodies = [_bodies(round_) for round_ in range(1, ROUNDS + 1)]
    cpu = Cpu(ingest)
    began = time.perf_counter()

    async def send(number: int, round_: int, due: float) -> None:
        await senders.send(number, bodies[round_][number % BODIES].content, due)

    late = await _rounds(bodies, readers, send)
    seconds = time.perf_counter() - began
    of_ingest, of_postgres = cpu.used()
    await senders.close()
    sent = MACHINES * ROUNDS
    said = f"answers {senders.statuses}; the generator was {late:.1f} s late at most"
    return [
        Figure("samples a second, 10,000 machines every 15 s", sent / seconds, "samples/s", note=said),
        Figure("CPU of the ingest process for it", of_ingest / seconds, "cores"),
        Figure("CPU of PostgreSQL for it, with the API's reads", of_postgres / seconds, "cores"),
        Figure("CPU for one sample, of both", 1e6 * (of_ingest + of_postgres) / sent, "us"),
        Figure(
            "real time that both need for 15 s of all machines, on one core",
            SECONDS * (of_ingest + of_postgres) / (sent / MACHINES * SECONDS),
            "s",
            "<= 15",
        ),
        Figure("sample to stored, p50", percentile(senders.seconds, 0.5), "s"),
        Figure("sample to stored, p99", percentile(senders.seconds, 0.99), "s"),
        *visible(readers, ""),
    ]


async def _replay_beside(port: int, readers: Readers) -> list[Figure]:
    """As after an hour without an ingest process: machines deliver 16 samples that waited with each new one."""
    senders = Senders(port)
    await senders.open()
    waited = _waited()
    rounds = len(waited) + 2
    bodies = [_bodies(10_000 + round_) for round_ in range(rounds)]
    left = dict.fromkeys(sorted(readers.customer.leases), 0)  # How many of these deliveries are done.
    for number in range(1, MACHINES + 1):
        if len(left) >= REPLAYING:
            break
        left.setdefault(number, 0)
    began = time.perf_counter()
    ended = began
    refused = 0

    async def send(number: int, round_: int, due: float) -> None:
        nonlocal ended, refused
        while await senders.send(number, bodies[round_][number % BODIES].content, due) != 200:
            refused += 1
            await asyncio.sleep(5)
        done = left.get(number, len(waited))
        if done < len(waited):
            if await senders.send(number, waited[done]) == 200:
                left[number] = done + 1
                ended = time.perf_counter()
            else:
                refused += 1

    await _rounds(bodies, readers, send)
    seconds = ended - began
    await senders.close()
    name = f"an hour's backlog of {len(left):,} of {MACHINES:,} machines, beside what all of them send"
    note = f"answers {senders.statuses}; {refused} were refused and sent again"
    if min(left.values()) < len(waited):
        note += f"; {sum(done < len(waited) for done in left.values())} machines have some left"
    return [
        Figure(name, seconds, "s", note=note),
        Figure("samples a second, of both", (len(left) * BACKLOG + MACHINES * rounds) / seconds, "samples/s"),
        *visible(readers, " meanwhile"),
    ]


def _waited() -> list[bytes]:
    """An hour of a machine in the deliveries in which an agent sends it, the oldest first."""
    samples = [
        replace(busy_sample(n % 40, gpus=GPUS, at_ms=SECONDS * 1_000 * n), sequence=1_000 + n)
        for n in range(BACKLOG)
    ]
    now_ms = SECONDS * 1_000 * BACKLOG
    parts: Sequence[Sequence[Sample]] = [
        samples[first : first + REPLAYED_MAX] for first in range(0, BACKLOG, REPLAYED_MAX)
    ]
    return [encode_delivery(Delivery(now_ms, tuple(part))) for part in parts]


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


@dataclass
class _Served:
    """What runs while it is measured."""

    ingest_port: int
    ingest: psutil.Process
    api_port: int
    customer: Customer
    url: str

    @asynccontextmanager
    async def readers(self) -> AsyncIterator[Readers]:
        readers = Readers(self.api_port, self.customer)
        await readers.open()
        yield readers
        await readers.close()


@asynccontextmanager
async def _served() -> AsyncIterator[_Served]:
    url = await ground.empty_database("telemetry")
    customer = await _fill(url)
    with (
        _ingest(ground.login_url(url, Role.INGEST)) as (port, process),
        api(ground.login_url(url, Role.API), api_port := free_port(), free_port()),
    ):
        await _ready(port)
        await _ready(api_port)
        yield _Served(port, process, api_port, customer, url)


async def measure() -> list[Figure]:
    async with _served() as served:
        async with served.readers() as readers:
            figures = _said(await _steady(served.ingest_port, readers, served.ingest))
        figures += _said(await _replay(served.ingest_port, served.ingest))
        async with served.readers() as readers:
            figures += _said(await _replay_beside(served.ingest_port, readers))
    connection = await asyncpg.connect(served.url)
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


def _said(figures: list[Figure]) -> list[Figure]:
    """Show figures as soon as they are there."""
    for figure in figures:
        print(f"  {figure.name}: {figure.value:,.3f} {figure.unit}  {figure.note}", flush=True)
    return figures
