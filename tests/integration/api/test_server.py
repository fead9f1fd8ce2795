"""The real process on real sockets: what only a server can get wrong."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import psutil
import pytest

from control_plane.domain.permission import Role
from control_plane.services import administration, process
from tests.support.database import fresh_database

pytestmark = pytest.mark.database


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Served:
    port: int
    metrics_port: int
    secret: str
    process: subprocess.Popen[bytes]

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", headers=self.authorization, timeout=20
        )

    async def raw(self, request: bytes) -> bytes:
        """Bytes in, bytes out, until the server closes or has sent its headers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        await writer.drain()
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(65_536), 20)
        writer.close()
        return answer

    async def metric(self, name: str) -> float:
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://127.0.0.1:{self.metrics_port}/metrics")).text
        return float(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[1])


@pytest.fixture(scope="module")
async def served(server_url: str, template: str) -> AsyncIterator[Served]:
    """A server for all tests that leave it running: its start costs more than the tests."""
    async with fresh_database(server_url, template) as url, _started(url) as found:
        yield found


@pytest.fixture
async def own(database_url: str) -> AsyncIterator[Served]:
    """A server that the test may stop."""
    async with _started(database_url) as found:
        yield found


@contextlib.asynccontextmanager
async def _started(database_url: str) -> AsyncIterator[Served]:
    owner = process.owner_world(database_url)
    await administration.load_price_book(owner, _book())
    made = await administration.bootstrap(owner, "acme", role=Role.CUSTOMER, credit=None, gpu_quota=64)
    await owner.db.close()
    assert isinstance(made, administration.FirstOrganization)
    port, metrics_port = _free_port(), _free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROVIDER_")} | {
        "SPLITPLANE_DATABASE_URL": database_url,
        "SPLITPLANE_LISTEN": f"127.0.0.1:{port}",
        "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{metrics_port}",
    }
    started = subprocess.Popen(  # noqa: ASYNC220 - starting takes milliseconds
        [sys.executable, "-m", "control_plane", "serve"], env=environment, stderr=subprocess.PIPE
    )
    found = Served(port, metrics_port, made.issued.secret, started)
    try:
        async with found.client() as client:
            for _ in range(400):
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get("/readyz")).is_success:
                        break
                await asyncio.sleep(0.05)
        yield found
    finally:
        started.kill()
        started.wait(20)
        assert started.stderr is not None
        started.stderr.close()


def _book() -> str:
    lines = '[[sku]]\nname = "free"\ngpu_model = "l4-24gb"\ngpu_count = 1\nvcpus = 1\nmemory_gib = 1\ndisk_gib = 1\n'
    return lines + 'usd_per_gpu_hour = "0"\n'


async def test_bytes_that_are_not_a_valid_request_are_refused_and_the_server_goes_on(served: Served) -> None:
    head = b"Host: x\r\nAuthorization: Bearer " + served.secret.encode() + b"\r\n"
    for request in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/leases/\xff\xfe HTTP/1.1\r\n" + head + b"\r\n",
        b"GET /v1/leases?cursor=\xff HTTP/1.1\r\n" + head + b"\r\n",
        b"GET /%ff%fe HTTP/1.1\r\n" + head + b"\r\n",
        b"GET /v1/leases HTTP/1.1\r\n" + head + b"X: " + b"a" * 600_000 + b"\r\n\r\n",
        b"GET /v1/leases HTTP/1.1\r\n" + head + b"a: b\r\n" * 400 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + head + b"\r\n",
        b"POST /v1/leases HTTP/1.1\r\n" + head + b"Content-Length: -1\r\n\r\n",
        b"POST /v1/leases HTTP/1.1\r\n" + head + b"Content-Length: 9\r\nContent-Length: 8\r\n\r\n{}",
        b"POST /v1/leases HTTP/1.1\r\n"
        + head
        + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/leases HTTP/1.1\r\n"
        + head
        + b"Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n"
        + b" " * 900_000,
        b"GET /v1/leases HTTP/1.1\r\n" + head.replace(b"Host: x", b"Host: \xff bad") + b"\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\n" + head + b"\r\n",
    ):
        answer = await served.raw(request)
        assert answer[:10] in (b"", b"HTTP/1.1 4", b"HTTP/1.0 4") or b"REFUSED" in answer, (
            request[:60],
            answer,
        )
    async with served.client() as client:
        assert (await client.get("/healthz")).status_code == 200
    assert served.process.poll() is None


async def test_a_stream_over_a_socket_gets_each_event_at_once_and_leaves_nothing_open(served: Served) -> None:
    async with served.client() as client:
        lease = (await client.post("/v1/leases", json={"sku": "free"})).json()["id"]
        async with client.stream("GET", f"/v1/leases/{lease}/events") as answer:
            lines = answer.aiter_lines()
            while await anext(lines) != "event: status":
                pass
            assert await served.metric("splitplane_api_streams") == 1
            # Others are served meanwhile, on the same process.
            assert (await client.get(f"/v1/leases/{lease}")).status_code == 200
            await client.post(f"/v1/leases/{lease}/release")
            async for line in lines:
                if line.startswith("data") and '"phase":"ending"' in line:
                    break
        for _ in range(200):
            if await served.metric("splitplane_api_streams") == 0:
                break
            await asyncio.sleep(0.05)
        assert await served.metric("splitplane_api_streams") == 0


async def test_the_server_stops_on_request_and_its_log_is_json_without_secrets(own: Served) -> None:
    async with own.client() as client:
        assert (await client.get(f"/v1/leases?cursor={own.secret}")).status_code == 400
    own.process.send_signal(signal.SIGTERM)
    _, logged = await asyncio.to_thread(own.process.communicate, timeout=30)
    assert own.process.returncode == 0
    lines = logged.splitlines()
    assert any(b'"event":"request"' in line and b'"route":"/v1/leases"' in line for line in lines), logged
    assert own.secret.encode() not in logged
    assert b"Traceback" not in logged


async def test_a_killed_server_leaves_no_worker_that_serves_on(own: Served) -> None:
    workers = psutil.Process(own.process.pid).children(recursive=True)
    assert workers
    own.process.kill()
    gone, alive = await asyncio.to_thread(psutil.wait_procs, workers, timeout=20)
    assert not alive, gone
