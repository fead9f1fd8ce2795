"""Somebody who asks the API again and again what their machines measure: how long a sample takes to be visible."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.results import Figure, percentile
from control_plane.db.engine import Database
from control_plane.domain.ids import OrganizationId
from control_plane.domain.role import Role
from control_plane.domain.scope import ORGANIZATION
from control_plane.services import api_keys, organizations
from control_plane.world import World

READERS = 8
ASKED_EVERY = 0.1


@dataclass(frozen=True)
class Customer:
    """Somebody who looks at what their machines measure."""

    key: str
    leases: dict[int, str]
    """Of each of their machines, by its number: the lease's id on the wire."""


@dataclass
class Readers:
    """Asks the API for the metrics of a customer's leases until a sample is there."""

    port: int
    customer: Customer
    seconds: list[float] = field(default_factory=list[float])
    """From when each sample was read until an answer showed it."""
    statuses: set[int] = field(default_factory=set[int])
    _free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(
        default_factory=asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    )

    async def open(self) -> None:
        for _ in range(READERS):
            self._free.put_nowait(await asyncio.open_connection("127.0.0.1", self.port))

    async def until_seen(self, number: int, due: float, shown: set[tuple[int | None, ...]]) -> None:
        """`due` is when the sample of this machine is read, by `time.perf_counter`.

        `shown` is the memory in use of each GPU, in it and in each later one.
        """
        while True:
            if await self._latest(self.customer.leases[number]) in shown:
                break
            await asyncio.sleep(ASKED_EVERY)
        self.seconds.append(time.perf_counter() - due)

    async def _latest(self, lease: str) -> tuple[int | None, ...] | None:
        reader, writer = await self._free.get()
        request = f"GET /v1/leases/{lease}/metrics?last=60 HTTP/1.1\r\nHost: api\r\n"
        writer.write(f"{request}Authorization: Bearer {self.customer.key}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        body = json.loads(await reader.readexactly(int(length.split(b":")[1])))
        self._free.put_nowait((reader, writer))
        self.statuses.add(int(head[9:12]))
        latest = body.get("latest")
        return None if latest is None else tuple(gpu["memory_used_mib"] for gpu in latest["gpus"])

    async def close(self) -> None:
        while not self._free.empty():
            self._free.get_nowait()[1].close()


def visible(readers: Readers, when: str) -> list[Figure]:
    if readers.statuses != {200}:
        raise RuntimeError(f"the API answered {readers.statuses}")
    note = f"{len(readers.seconds)} samples, by GET /v1/leases/ID/metrics"
    return [
        Figure(f"sample to visible in the API{when}, p50", percentile(readers.seconds, 0.5), "s", note=note),
        Figure(f"sample to visible in the API{when}, p99", percentile(readers.seconds, 0.99), "s", "<= 10"),
    ]


@contextmanager
def api(url: str, port: int, metrics: int) -> Iterator[None]:
    """An API process that asks nobody to be slower."""
    process = subprocess.Popen(
        [sys.executable, "-m", "control_plane", "serve"],
        env={
            "PATH": os.environ["PATH"],
            "SPLITPLANE_DATABASE_URL": url,
            "SPLITPLANE_LISTEN": f"127.0.0.1:{port}",
            "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{metrics}",
            "SPLITPLANE_REQUESTS_PER_SECOND": "1000000",
            "SPLITPLANE_REQUESTS_BURST": "1000000",
            "SPLITPLANE_ORGANIZATION_REQUESTS_PER_SECOND": "1000000",
            "SPLITPLANE_ORGANIZATION_REQUESTS_BURST": "1000000",
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


async def key_of(url: str, organization_id: OrganizationId) -> str:
    database = Database(url, role=None)
    world = World(database)
    async with database.transaction() as connection:
        account = await organizations.create_first_account(
            connection, world, organization_id, "bench", role=Role.OWNER, scope=ORGANIZATION
        )
        issued = await api_keys.issue(connection, world, organization_id, account.subject, name="bench")
    await database.close()
    return issued.secret
