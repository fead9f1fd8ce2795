"""The real process on real sockets: what only a server can get wrong."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import IO

import httpx
import psutil
import pytest

from control_plane.api.requests import BODY_SECONDS
from control_plane.api.server import HEAD_BYTES_MAX, STOP_SECONDS
from control_plane.db.connect import ANSWER_SECONDS_MAX
from control_plane.db.engine import Role as DatabaseRole
from control_plane.services import administration, process
from demo.ports import free_port
from tests.support.cases import case
from tests.support.database import fresh_database, login_url
from tests.support.proxy import proxied

pytestmark = pytest.mark.database


REQUESTS = 5


@dataclass
class Served:
    port: int
    metrics_port: int
    secret: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    """A file: a pipe that nobody reads would stop the server when it is full."""

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def client(self, *, from_address: str = "127.0.0.1") -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}",
            headers=self.authorization,
            timeout=20,
            transport=httpx.AsyncHTTPTransport(local_address=from_address),
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
    async with process.administrator(database_url) as owner:
        await administration.load_price_book(owner, _book())
        made = await administration.bootstrap(owner, "acme", top_up=None, gpu_quota=64)
    assert isinstance(made, administration.FirstOrganization)
    metrics_port = free_port()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, after the process
    started, port = _start(database_url, log, metrics_port=metrics_port, port=free_port())
    found = Served(port, metrics_port, made.issued.secret, started, log)
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
        log.close()


def _start(
    database_url: str, log: IO[bytes] | int, *, metrics_port: int, port: int
) -> tuple[subprocess.Popen[bytes], int]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROVIDER_")} | {
        "SPLITPLANE_DATABASE_URL": login_url(database_url, DatabaseRole.API),
        "SPLITPLANE_LISTEN": f"127.0.0.1:{port}",
        "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{metrics_port}",
    }
    started = subprocess.Popen([sys.executable, "-m", "control_plane", "serve"], env=environment, stderr=log)
    return started, port


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
        lease = (await client.post("/v1/leases", json={"sku": "free", "ssh_key_ids": []})).json()["id"]
        async with client.stream("GET", f"/v1/leases/{lease}/events") as answer:
            lines = answer.aiter_lines()
            while await anext(lines) != "event: status":
                pass
            assert await served.metric("splitplane_api_streams") == 1
            # Others are served meanwhile, on the same process.
            assert (await client.get(f"/v1/leases/{lease}")).status_code == 200
            await client.post(f"/v1/leases/{lease}/release")
            async for line in lines:
                if line.startswith("data") and '"state":"ending"' in line:
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
    await asyncio.to_thread(own.process.wait, 30)
    own.log.seek(0)
    logged = own.log.read()
    assert own.process.returncode == 0
    lines = logged.splitlines()
    assert any(b'"event":"request"' in line and b'"route":"/v1/leases"' in line for line in lines), logged
    events = [json.loads(line) for line in lines]
    (started,) = [event for event in events if event["event"] == "api_started"]
    assert started["listen"] == f"127.0.0.1:{own.port}"
    assert started["metrics_listen"] == f"127.0.0.1:{own.metrics_port}"
    assert events[-1]["event"] == "api_stopped"
    assert own.secret.encode() not in logged
    assert b"Traceback" not in logged


async def test_open_streams_end_within_the_drain_time_and_without_noise(own: Served) -> None:
    async with own.client() as client:
        lease = (await client.post("/v1/leases", json={"sku": "free", "ssh_key_ids": []})).json()["id"]
        async with contextlib.AsyncExitStack() as opened:
            answers = [
                await opened.enter_async_context(client.stream("GET", f"/v1/leases/{lease}/events"))
                for _ in range(5)
            ]
            readers = [answer.aiter_lines() for answer in answers]
            for lines in readers:
                while await anext(lines) != "event: status":
                    pass
            own.process.send_signal(signal.SIGTERM)
            for lines in readers:  # The answer is complete: a cut connection would raise an error.
                assert "retry: 2000" in [line async for line in lines]
    await asyncio.to_thread(own.process.wait, 2 * STOP_SECONDS)  # Its exit takes longer on a busy machine.
    assert own.process.returncode == 0
    own.log.seek(0)
    logged = own.log.read()
    events = [json.loads(line)["event"] for line in logged.splitlines()]
    assert set(events) <= {"database_usable", "api_started", "request", "api_stopped"}, logged


async def test_a_killed_server_leaves_no_worker_that_serves_on(own: Served) -> None:
    workers = psutil.Process(own.process.pid).children(recursive=True)
    assert workers
    own.process.kill()
    gone, alive = await asyncio.to_thread(psutil.wait_procs, workers, timeout=20)
    assert not alive, gone


async def test_a_killed_server_leaves_no_worker_that_waits_for_its_database(
    server_url: str, template: str
) -> None:
    async with (
        fresh_database(server_url, template) as url,
        proxied(url) as proxy,
        _started(proxy.url) as own,
        own.client() as client,
    ):
        workers = psutil.Process(own.process.pid).children(recursive=True)
        proxy.flows.clear()
        asked = [asyncio.create_task(client.get("/v1/leases")) for _ in range(REQUESTS)]
        in_use = 'splitplane_database_connections_in_use{pool="reads"}'
        while await own.metric(in_use) < REQUESTS:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        own.process.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, timeout=ANSWER_SECONDS_MAX / 2)
        assert not alive
        await asyncio.gather(*asked, return_exceptions=True)


IDLE_SECONDS = 10
"""As it is set where nobody sets it."""
CONNECTIONS_EACH = 400
"""Half-sent requests of each kind: in all more than were enough to stop a server that kept each for ever."""


async def _closed_after(reader: asyncio.StreamReader) -> tuple[float, bytes]:
    """How long the server keeps a connection open, in seconds, and what it says."""
    loop = asyncio.get_running_loop()
    started, answer = loop.time(), b""
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(), IDLE_SECONDS + BODY_SECONDS + 10)
    return loop.time() - started, answer


async def test_half_sent_requests_end_at_their_deadline_and_hold_up_nobody(served: Served) -> None:
    head = b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    key = b"Authorization: Bearer " + served.secret.encode() + b"\r\n\r\n"
    cases = {
        "nothing": b"",
        "half a head": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-",
        "half a body without a key": head + b"\r\n{",
        "half a body": head + key + b"{",
        "idle": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    }
    async with served.client() as client:
        made = (await client.post("/v1/api-keys", json={"name": "other"})).json()
        other = {"Authorization": f"Bearer {made['secret']}"}
    held: list[asyncio.StreamReader] = []
    async with contextlib.AsyncExitStack() as stack:
        for sent in cases.values():
            for _ in range(CONNECTIONS_EACH):
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
                stack.callback(writer.close)
                writer.write(sent)
                held.append(reader)
        async with served.client(from_address="127.0.0.2") as client:
            for _ in range(20):
                assert (await asyncio.wait_for(client.get("/v1/skus", headers=other), 10)).status_code == 200
        ended = await asyncio.gather(*(_closed_after(reader) for reader in held))
    for number, name in enumerate(cases):
        with case(name):
            found = ended[number * CONNECTIONS_EACH :][:CONNECTIONS_EACH]
            assert max(seconds for seconds, _ in found) < IDLE_SECONDS + BODY_SECONDS
            statuses = {answer[9:12] for _, answer in found}
            assert statuses <= {
                "half a body without a key": {b"401", b"429"},
                "half a body": {b"408", b"429"},
                "idle": {b"200", b"429"},
            }.get(name, {b""})
    async with served.client() as client:
        assert (await client.get("/v1/leases")).status_code == 200


async def test_only_http_1_is_spoken(served: Served) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    assert b"HTTP/2" not in await served.raw(preface)
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    answer = await served.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + upgrade)
    assert answer.startswith(b"HTTP/1.1 200")
    for sent in (preface, b"\x00\x00\x04\x00"):
        answer = await served.raw(sent)
        assert not answer or answer.startswith(b"HTTP/1.1 4"), answer


async def test_a_head_that_grows_is_cut(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    sent = 0
    with contextlib.suppress(ConnectionError):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ")
        while sent < 10 * HEAD_BYTES_MAX and not reader.at_eof():
            writer.write(b"a" * 16_384)
            await writer.drain()
            sent += 16_384
            await asyncio.sleep(0.01)
        assert (await reader.read(12))[:10] in (b"", b"HTTP/1.1 4")
    assert sent < 10 * HEAD_BYTES_MAX
    writer.close()


async def test_no_moment_of_a_killed_start_leaves_a_worker(server_url: str, template: str) -> None:
    async with fresh_database(server_url, template) as url:
        for seconds in (0.0, 0.01, 0.1, 0.5):
            with case(f"killed {seconds} s after the worker began"):
                started, port = _start(url, subprocess.DEVNULL, metrics_port=free_port(), port=free_port())
                parent = psutil.Process(started.pid)
                while not (workers := parent.children(recursive=True)):
                    assert started.poll() is None, "the API ended before it had a worker"
                    await asyncio.sleep(0.002)
                await asyncio.sleep(seconds)
                started.kill()
                started.wait(20)
                _, alive = await asyncio.to_thread(psutil.wait_procs, workers, timeout=20)
                assert not alive
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
