"""The verifier as an operator starts and stops it, with real checks."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from data_plane.proof.verifier.jobs import Checked, Fault, Job, LaunchJob
from data_plane.proof.verifier.recompute import LocalVerifier
from data_plane.proof.verifier.service.client import RemoteVerifier, connect
from data_plane.proof.verifier.service.settings import ClientSettings
from tests.integration.data_plane.proof.verifier.conftest import until
from tests.support import proof_jobs as honest
from tests.support.authority import Authority, write

PLAINTEXT = {
    "SPLITPLANE_VERIFIER_PLAINTEXT": "yes",
    "SPLITPLANE_VERIFIER_LISTEN": "127.0.0.1:0",
    "SPLITPLANE_VERIFIER_METRICS_LISTEN": "127.0.0.1:0",
    "SPLITPLANE_VERIFIER_WORKERS": "1",
}


async def start(environ: Mapping[str, str], *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "data_plane.proof.verifier.service"),
        *(arguments or ("serve",)),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@dataclass
class Running:
    process: asyncio.subprocess.Process
    started: dict[str, Any]
    verifier: RemoteVerifier

    def workers(self) -> set[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {int(pid) for pid in path.read_text().split()}

    async def metrics(self) -> str:
        async with httpx.AsyncClient() as scraper:
            url = f"http://127.0.0.1:{self.started['metrics_port']}/metrics"
            return (await scraper.get(url)).text


@asynccontextmanager
async def running(environ: Mapping[str, str], client: ClientSettings | None = None) -> AsyncIterator[Running]:
    process = await start(environ)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            line = await process.stderr.readline()
        started = json.loads(line)
        assert started["event"] == "verifier_started"
        settings = client or ClientSettings((), None, None, seconds=60)
        verifier = connect(replace(settings, addresses=(f"127.0.0.1:{started['port']}",)))
        yield Running(process, started, verifier)
        await verifier.close()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def is_alive(pid: int) -> bool:
    """A zombie is not alive: it only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def without_time(results: list[Checked]) -> list[Checked]:
    return [replace(one, cpu_seconds=0.0) for one in results]


async def test_the_service_finds_what_a_verifier_in_process_finds() -> None:
    walk, tiles = honest.walking(), honest.tiling("bf16")
    flipped = bytes([walk.commitment.digests[0] ^ 1]) + walk.commitment.digests[1:]
    jobs: list[Job] = [
        honest.launch(),
        replace(honest.launch(), final=bytes(16)),
        walk,
        replace(walk, iterations=3),
        replace(walk, commitment=replace(walk.commitment, digests=flipped)),
        honest.tiling("int8"),
        tiles,
        replace(tiles, commitment=replace(tiles.commitment, hashes=tiles.commitment.hashes[:-16])),
        replace(tiles, commitment=replace(tiles.commitment, root=bytes(32))),
        walk,
    ]
    async with running(PLAINTEXT) as service:
        found = await service.verifier.check(jobs)
        shown = await service.metrics()
    assert [one.fault for one in found] == [
        None,
        Fault.DIGEST,
        None,
        Fault.DIGEST,
        Fault.GROUP,
        None,
        None,
        Fault.SIZES,
        Fault.ROOT,
        None,
    ]
    assert without_time(found) == without_time(await LocalVerifier().check(jobs))
    assert 'splitplane_verifier_jobs_total{kind="walk",result="right"} 2.0' in shown
    assert 'splitplane_verifier_jobs_total{kind="bf16",result="sizes"} 1.0' in shown


def slow() -> LaunchJob:
    return LaunchJob(bytes(16), 10_000, bytes(16))


async def test_a_service_that_is_asked_to_stop_while_it_is_busy_answers_first() -> None:
    async with running(PLAINTEXT) as service:
        workers = service.workers()
        checking = asyncio.create_task(service.verifier.check([slow()] * 20))
        async with asyncio.timeout(30):
            while "running_jobs 1.0" not in await service.metrics():
                pass
        service.process.send_signal(signal.SIGTERM)
        for pid in workers:
            os.kill(pid, signal.SIGTERM)  # As a supervisor does that signals all of a service's processes.
        assert [one.fault for one in await checking] == [Fault.DIGEST] * 20
        assert await service.process.wait() == 0
        assert not any(is_alive(pid) for pid in workers)


async def test_a_service_that_is_killed_leaves_no_worker_behind() -> None:
    async with running(PLAINTEXT) as service:
        workers = service.workers()
        assert len(workers) == 1
        endless = replace(honest.walking(), steps=8192, iterations=100)
        checking = asyncio.create_task(service.verifier.check([endless]))
        async with asyncio.timeout(30):
            while "running_jobs 1.0" not in await service.metrics():
                pass
        service.process.kill()
        checking.cancel()
        await until(lambda: not any(is_alive(pid) for pid in workers))


async def test_it_serves_over_mutual_tls_and_logs_no_secret(tmp_path: Path) -> None:
    ours = Authority("ours")
    files = write(tmp_path, ours.issue("127.0.0.1"), ours)
    environ = {name: value for name, value in PLAINTEXT.items() if "PLAINTEXT" not in name} | {
        "SPLITPLANE_VERIFIER_CERTIFICATE": str(files.certificate),
        "SPLITPLANE_VERIFIER_KEY": str(files.key),
        "SPLITPLANE_VERIFIER_CLIENT_CA": str(files.ca),
    }
    async with running(environ, ClientSettings((), files, None, seconds=60)) as service:
        walk = honest.walking()
        assert (await service.verifier.check([walk]))[0].fault is None
        service.process.send_signal(signal.SIGTERM)
        _, log = await service.process.communicate()
    assert service.process.returncode == 0
    key = files.key.read_text().splitlines()[1]
    for secret in (key, walk.seed.hex(), repr(walk.seed), walk.commitment.key.hex()):
        assert secret not in log.decode()
    assert json.loads(log.splitlines()[0])["caller"] == "127.0.0.1"


async def run_service(environ: Mapping[str, str], *arguments: str) -> tuple[int | None, str, str]:
    process = await start(environ, *arguments)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_help_names_every_variable() -> None:
    code, out, _ = await run_service({}, "--help")
    assert code == 0
    for name in (
        "CERTIFICATE",
        "KEY",
        "CLIENT_CA",
        "LISTEN",
        "WORKERS",
        "QUEUE",
        "DRAIN_SECONDS",
        "PLAINTEXT",
    ):
        assert f"SPLITPLANE_VERIFIER_{name}" in out


async def test_a_service_that_cannot_start_says_why_in_its_last_line(tmp_path: Path) -> None:
    missing = {
        "SPLITPLANE_VERIFIER_CERTIFICATE": str(tmp_path / "certificate.pem"),
        "SPLITPLANE_VERIFIER_KEY": str(tmp_path / "key.pem"),
        "SPLITPLANE_VERIFIER_CLIENT_CA": str(tmp_path / "ca.pem"),
        "SPLITPLANE_VERIFIER_WORKERS": "1",
    }
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for environ, sentence in (
            ({}, "SPLITPLANE_VERIFIER_CERTIFICATE is not set"),
            (missing, "certificate.pem: No such file"),
            (
                PLAINTEXT | {"SPLITPLANE_VERIFIER_LISTEN": address},
                f"SPLITPLANE_VERIFIER_LISTEN is '{address}'",
            ),
            (
                PLAINTEXT | {"SPLITPLANE_VERIFIER_METRICS_LISTEN": address},
                f"SPLITPLANE_VERIFIER_METRICS_LISTEN is '{address}'",
            ),
        ):
            code, _, err = await run_service(environ)
            assert code == 2
            assert "Traceback" not in err
            assert err.splitlines()[-1].startswith("verifier: ")
            assert sentence in err.splitlines()[-1]
