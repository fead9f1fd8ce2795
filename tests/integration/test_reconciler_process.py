"""The reconciler as a process: it waits for its database, says how it is, and survives what a database does."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg
import httpx
import pytest
import structlog
from prometheus_client import REGISTRY
from sqlalchemy.engine import make_url

from control_plane.db import embedded
from control_plane.db.clock import DatabaseClock
from control_plane.db.engine import Database, Role
from control_plane.db.migrate import migrate
from control_plane.vault.errors import KeyManagerError
from control_plane.world import utc_now, uuid7
from reconciler.health import Health
from reconciler.listener import Listener
from reconciler.loop import Loop, Report
from reconciler.process import BuildWorld, Process
from reconciler.world import World
from tests.support.database import fresh_database, login_url
from tests.support.proxy import Proxy, proxied

SECONDS_MAX = 20.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.db.watch.LOOK_SECONDS_MAX", 1.0)
    monkeypatch.setattr("control_plane.db.watch.REREAD_EVERY", timedelta(milliseconds=50))
    for module in ("control_plane.db.watch", "reconciler.process"):
        monkeypatch.setattr(f"{module}.RETRY_SECONDS", 0.05)


@dataclass
class Running:
    health: Health
    worlds: list[World]
    """The worlds that were built, one for each time the loops began."""
    activations: list[datetime]

    def reasons(self) -> list[str]:
        return list(self.health.not_ready())

    async def until(self, true: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while not true():  # noqa: ASYNC110 - what another process sees has no event
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"it never was so: {self.reasons()}, {len(self.activations)} activations")

    async def until_reason(self, part: str) -> None:
        await self.until(lambda: any(part in reason for reason in self.reasons()))

    async def until_it_works(self) -> None:
        """It is ready, and a loop runs."""
        before = len(self.activations)
        await self.until(lambda: not self.reasons() and len(self.activations) > before)


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Running]:
    db = Database(login_url(url, Role.RECONCILER), role=Role.RECONCILER, pool_size=2, readers=2)
    worlds: list[World] = []
    activations: list[datetime] = []

    async def build(clock: DatabaseClock) -> World:
        worlds.append(World(db=db, now=clock.now, new_id=uuid7, clock_refusal=clock.refusal))
        return worlds[-1]

    async def activate(world: World) -> Report:
        activations.append(world.now())
        return Report()

    health = Health()
    process = Process(db, build, [Loop("count", timedelta(milliseconds=20), activate)], health)
    task = asyncio.create_task(process.run())
    try:
        yield Running(health, worlds, activations)
        assert not task.done(), "a process runs until it is stopped"
    finally:
        process.stop()
        await asyncio.wait_for(task, SECONDS_MAX)
        await db.close()


@pytest.mark.database
async def test_it_waits_for_its_database_in_every_state_and_says_which(server_url: str) -> None:
    name = f"test_{os.getpid()}_waiting"
    url = embedded.named(server_url, name)
    owner = await asyncpg.connect(server_url)
    try:
        with structlog.testing.capture_logs() as lines:
            async with running(url) as process:
                await process.until_reason(f'Waiting for the database: database "{name}" does not exist')
                await owner.execute(f"CREATE DATABASE {name}")
                await process.until_reason("lacks the column")
                assert "run `python -m control_plane migrate`" in process.reasons()[0]
                await migrate(url)
                await process.until_it_works()

                # The loops began with a database that is gone now. They begin anew, with the new one's code.
                await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
                await process.until_reason("Waiting for the database")
                await owner.execute(f"CREATE DATABASE {name}")
                await migrate(url)
                await process.until(lambda: len(process.worlds) > 1)
                await process.until_it_works()
    finally:
        await owner.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await owner.close()
    waits = [line["why"] for line in lines if line["event"] == "waiting_for_database"]
    assert len(waits) == len(
        [why for why, last in zip(waits, [None, *waits], strict=False) if why != last]
    ), "a sentence is logged when it changes, and not again and again"
    assert "database_usable" in {line["event"] for line in lines}


@pytest.mark.database
@pytest.mark.parametrize("error", [ConnectionRefusedError(), KeyManagerError("KMS is away.")])
async def test_it_tries_again_when_what_it_begins_with_is_away(database_url: str, error: Exception) -> None:
    again = asyncio.Event()
    errors = [error, error]

    async def build(_: DatabaseClock) -> World:
        if not errors:
            again.set()
        raise errors.pop() if errors else error

    async with _beginning(database_url, build) as running:
        await asyncio.wait_for(again.wait(), SECONDS_MAX)
        assert not running.done()


@pytest.mark.database
async def test_a_process_that_cannot_begin_for_another_reason_ends_so_that_a_deployment_sees_it(
    database_url: str,
) -> None:
    async def build(_: DatabaseClock) -> World:
        raise ValueError("a fault of ours")

    async with _beginning(database_url, build) as running:
        with pytest.raises(ValueError, match="a fault of ours"):
            await asyncio.wait_for(asyncio.shield(running), SECONDS_MAX)


@asynccontextmanager
async def _beginning(url: str, build: BuildWorld) -> AsyncIterator["asyncio.Task[None]"]:
    """A process that runs, without loops."""
    db = Database(login_url(url, Role.RECONCILER), role=Role.RECONCILER, pool_size=2, readers=2)
    process = Process(db, build, [], Health())
    running = asyncio.create_task(process.run())
    try:
        yield running
    finally:
        process.stop()
        await asyncio.wait([running], timeout=SECONDS_MAX)
        await db.close()


@pytest.mark.database
async def test_another_database_in_the_place_of_the_first_makes_the_loops_begin_anew(
    database_url: str,
) -> None:
    """As after a restore: orders with the launch keys of the first one would be nobody's machines."""
    owner = await asyncpg.connect(database_url)
    try:
        async with running(database_url) as process:
            await process.until_it_works()
            await owner.execute("UPDATE installation SET code = 'ffffffff'")
            await process.until(lambda: len(process.worlds) > 1)
            await process.until_it_works()
    finally:
        await owner.close()


@pytest.fixture
async def proxy(server_url: str, template: str) -> AsyncIterator[Proxy]:
    async with fresh_database(server_url, template) as url, proxied(url) as made:
        yield made


@pytest.mark.database
async def test_a_database_that_stands_still_is_named_and_stops_neither_the_loops_nor_the_end(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_plane.db.watch.LOOK_SECONDS_MAX", 0.1)
    monkeypatch.setattr("reconciler.runner.FINISH_SECONDS_MAX", 0.2)
    async with running(proxy.url) as process:
        await process.until_it_works()
        proxy.flows.clear()
        await process.until_reason(f"no answer from 127.0.0.1:{make_url(proxy.url).port}")
        proxy.flows.set()
        await process.until_it_works()
        assert len(process.worlds) == 1, "nothing begins anew"
        proxy.flows.clear()  # And it ends, while the server stands still.


def _clock_difference() -> float:
    shown = REGISTRY.get_sample_value("splitplane_clock_difference_seconds")
    assert shown is not None
    return shown


@pytest.mark.database
async def test_a_process_whose_host_is_wrong_does_no_work_until_it_is_right(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = timedelta(hours=1)
    monkeypatch.setattr("reconciler.process.utc_now", lambda: utc_now() + ahead)
    with structlog.testing.capture_logs() as lines:
        async with running(database_url) as process:
            await process.until_reason("The clock of this host is 3600.0 s ahead of the database's")
            await process.until(lambda: "clock_wrong" in {line["event"] for line in lines})
            await process.until(lambda: bool(process.worlds))
            assert abs(process.worlds[0].now() - utc_now()) < timedelta(minutes=1)
            assert not process.activations
            assert _clock_difference() == pytest.approx(3_600, abs=60)
            ahead = timedelta()
            await process.until_it_works()
            assert _clock_difference() == pytest.approx(0, abs=60)
            await process.until(lambda: "clock_right" in {line["event"] for line in lines})
    assert [line["event"] for line in lines].count("clock_wrong") == 1


@pytest.mark.database
async def test_a_loop_that_is_overdue_makes_it_unready(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(database_url) as process:
        await process.until_it_works()
        monkeypatch.setattr("reconciler.runner.late_after", lambda _: timedelta(seconds=-1))
        assert process.reasons() == ["The loop count has not finished an activation for too long."]
        monkeypatch.undo()


async def test_the_listener_serves_metrics_and_health_by_what_the_event_loop_answers() -> None:
    reasons: list[str] = []
    listener = Listener("127.0.0.1", 0, loop=asyncio.get_running_loop(), not_ready=lambda: reasons)
    with closing(listener):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}") as client:
            answer = await client.get("/readyz")
            assert (answer.status_code, answer.json()) == (200, {"status": "ready"})
            reasons.append("Waiting for the database: no answer.")
            answer = await client.get("/readyz")
            assert (answer.status_code, answer.json()) == (503, {"status": "not_ready", "reasons": reasons})
            assert (await client.get("/healthz")).json() == {"status": "up"}
            assert "splitplane_clock_difference_seconds" in (await client.get("/metrics")).text
            assert (await client.get("/other")).status_code == 404


def test_a_process_whose_event_loop_is_stuck_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.listener.ANSWER_SECONDS_MAX", 0.05)
    with closing(asyncio.new_event_loop()) as stuck:
        with closing(Listener("127.0.0.1", 0, loop=stuck, not_ready=list)) as listener:
            for path in ("/healthz", "/readyz"):
                answer = httpx.get(f"http://127.0.0.1:{listener.port}{path}")
                assert (answer.status_code, answer.json()) == (503, {"status": "stuck"})
        stuck.run_until_complete(asyncio.sleep(0))


@contextmanager
def _taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield int(taken.getsockname()[1])


def _end_of(command: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str]:
    """The exit code of a process that cannot start, and what it wrote."""
    ran = subprocess.run(
        [sys.executable, "-m", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_a_process_that_cannot_start_says_why_in_one_sentence_and_ends_with_2() -> None:
    url = "postgresql://u:planted@127.0.0.1:1/d"
    with _taken_port() as port:
        taken = f"127.0.0.1:{port}"
        verifier = {
            "SPLITPLANE_VERIFIER_PLAINTEXT": "yes",
            "SPLITPLANE_VERIFIER_METRICS_LISTEN": "127.0.0.1:0",
        }
        cases: tuple[tuple[tuple[str, ...], dict[str, str], str], ...] = (
            (
                ("reconciler", "run", "--only", "money"),
                {"SPLITPLANE_DATABASE_URL": "postgresql://u:planted@h:99999/d"},
                "SPLITPLANE_DATABASE_URL names no PostgreSQL database: its port must be",
            ),
            (
                ("reconciler", "run", "--only", "money"),
                {"SPLITPLANE_DATABASE_URL": url, "SPLITPLANE_RECONCILER_METRICS_LISTEN": taken},
                f"SPLITPLANE_RECONCILER_METRICS_LISTEN is {taken}, where we cannot listen: Address already in use",
            ),
            (
                ("data_plane.proof.verifier.service", "serve"),
                verifier | {"SPLITPLANE_VERIFIER_LISTEN": taken, "SPLITPLANE_VERIFIER_WORKERS": "1"},
                f"SPLITPLANE_VERIFIER_LISTEN is '{taken}', where we cannot listen: Address already in use",
            ),
            (
                ("providers.emulators", f"local={port}", "--simulated"),
                {},
                f"port {port} of local: Address already in use",
            ),
            (("providers.emulators", "local=65536", "--simulated"), {}, "not a port: 65536"),
            (
                ("reconciler", "run", "--only", "money"),
                {"SPLITPLANE_DATABASE_URL": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
                "reconciler: OTEL_EXPORTER_OTLP_PROTOCOL cannot be used: input should be 'http/protobuf'",
            ),
            (
                ("control_plane", "serve"),
                {
                    "SPLITPLANE_DATABASE_URL": url,
                    "OTEL_TRACES_EXPORTER": "otlp",
                    "OTEL_BSP_MAX_QUEUE_SIZE": "0",
                },
                "OpenTelemetry cannot be set up: max_queue_size must be a positive integer.",
            ),
        )
        with ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(lambda one: _end_of(one[0], one[1]), cases))
        for (command, _, sentence), (code, written) in zip(cases, ends, strict=True):
            assert code == 2, (command, written)
            assert sentence in written, command
            assert written.count("\n") == 1, (command, written)
            assert "planted" not in written
