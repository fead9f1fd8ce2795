"""The ingest process on a real database: it starts, stores what machines send, tells how it is, and stops."""

import asyncio
import hashlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from control_plane.db import samples
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import LeaseId
from control_plane.world import utc_now
from data_plane.agent import sample_line
from data_plane.agent.sampling import PAUSE_SECONDS_MAX, Sampling
from data_plane.agent.spool import SAMPLES, Spool
from data_plane.documents.agent_config import Config
from data_plane.documents.sample import Sample
from data_plane.documents.sample_delivery import encode_delivery, read_answer
from demo.ports import free_port
from tests.integration.db.sample import A, a_row, insert
from tests.support.database import login_url
from tests.support.ingest_process import ready, running
from tests.support.samples import AT_MS, busy_delivery, busy_sample

pytestmark = pytest.mark.database
CREDENTIAL = "5e" * 32
SECONDS_MAX = 60


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Database]:
    """A database with one agent, whose credential is known."""
    database = Database(database_url, role=None, pool_size=1, readers=1)
    async with database.transaction() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        for table in ("organizations", "projects", "claims"):
            await insert(connection, table, a_row(table, A))
        digest = hashlib.sha256(CREDENTIAL.encode()).hexdigest()
        await insert(connection, "agents", a_row("agents", A, digest=digest))
    yield database
    await database.close()


async def _send(url: str, first: int) -> httpx.Response:
    headers = {"Authorization": f"Bearer {CREDENTIAL}", "Content-Encoding": "gzip"}
    body = encode_delivery(busy_delivery(2, first=first))
    async with httpx.AsyncClient(timeout=SECONDS_MAX) as client:
        return await client.post(f"{url}/v1/samples", content=body, headers=headers)


async def test_what_a_machine_sends_is_stored_until_its_claim_ends_and_the_process_stops_cleanly(
    database_url: str, owner: Database
) -> None:
    with running(login_url(database_url, Role.INGEST)) as (process, url, metrics):
        await ready(url)
        answer = read_answer((await _send(url, 1)).content)
        assert (answer.verdict, answer.accepted_through) == ("accepted", 2)
        assert read_answer((await _send(url, 1)).content).verdict == "accepted"
        async with owner.reading() as connection:
            window = await samples.window(
                connection, LeaseId(a_row("agents", A)["lease_id"]), since=utc_now().replace(year=2000)
            )
        assert [sample.sequence for sample in window] in ([1, 2], [2, 1])
        assert len(window[0].document["gpus"]) == 8
        async with httpx.AsyncClient() as client:
            shown = (await client.get(f"{metrics}/metrics")).text
        assert 'splitplane_ingest_deliveries_total{verdict="accepted"} 2.0' in shown
        assert 'splitplane_ingest_samples_total{outcome="stored"} 2.0' in shown
        assert 'splitplane_ingest_samples_total{outcome="repeated"} 2.0' in shown
        async with owner.transaction() as connection:
            await connection.execute(text("UPDATE claims SET ended_at = now()"))
        until = time.monotonic() + 10
        while (refused := await _send(url, 3)).status_code == 200:
            assert time.monotonic() < until
            await asyncio.sleep(0.5)
        assert read_answer(refused.content).verdict == "ended"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0, said
        assert "ingest_stopped" in said
        assert CREDENTIAL not in said


async def test_what_an_agent_kept_while_the_process_was_away_is_stored_once_and_its_newest_first(
    database_url: str, owner: Database, tmp_path: Path
) -> None:
    now = [0.0]
    spool = Spool(tmp_path, SAMPLES, 100, first=1000)

    def read(of: "Spool[Sample]") -> Sample:
        return busy_sample(of.next_sequence, at_ms=AT_MS + int(1000 * now[0]))

    agent = Sampling(
        read, spool, sample_line.sender(_config(free_port())), lambda: AT_MS / 1000 + now[0], lambda: now[0]
    )

    def step(times: int) -> None:
        for _ in range(times):
            now[0] += 15
            agent.step()

    await asyncio.to_thread(step, 40)
    assert len(spool) == 40
    with running(login_url(database_url, Role.INGEST)) as (_, url, _):
        await ready(url)
        agent.send = sample_line.sender(_config(int(url.rpartition(":")[2])))
        now[0] += PAUSE_SECONDS_MAX * 1.4
        await asyncio.to_thread(step, 5)
        async with owner.reading() as connection:
            window = await samples.window(
                connection, LeaseId(a_row("agents", A)["lease_id"]), since=utc_now().replace(year=2000)
            )
    assert len(spool) == 0
    assert sorted(sample.sequence for sample in window) == list(range(1000, 1045))
    by_time = sorted(window, key=lambda sample: sample.at)
    assert [sample.sequence for sample in by_time] == list(range(1000, 1045)), "each at its own time"
    received = {sample.sequence: sample.received_at for sample in window}
    assert received[1040] < received[1000]


def _config(port: int) -> Config:
    return Config(CREDENTIAL, "127.0.0.1", "127.0.0.1", samples_port=port)
