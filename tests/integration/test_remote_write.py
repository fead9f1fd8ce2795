"""Samples arrive in a real Prometheus by remote write, once each, also after it was away; a crash loses none."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import httpx
import msgspec
import pytest
from sqlalchemy import text

from control_plane.db import samples
from control_plane.db.engine import Database, Role
from control_plane.db.samples import NewSample
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.world import uuid7
from data_plane.documents.sample import Sample, encode_sample
from environment.reading import SettingsError
from reconciler.loops.telemetry import write_samples
from reconciler.remote_write import targets
from reconciler.worlds.telemetry import Target, TelemetryWorld
from tests.integration.db.sample import A, a_row, insert
from tests.support.database import login_url
from tests.support.prometheus import Series, needs_prometheus, prometheus
from tests.support.samples import busy_sample

pytestmark = pytest.mark.database
NOW = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 - Prometheus has a clock of its own.
STEP = timedelta(seconds=15)
URL = "http://store/api/v1/write"


@pytest.fixture
async def reconciler(database_url: str) -> AsyncIterator[Database]:
    owner = Database(database_url, role=None, pool_size=1, readers=1)
    async with owner.transaction() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        for table in ("organizations", "projects", "claims"):
            await insert(connection, table, a_row(table, A))
        await insert(connection, "machines", a_row("machines", A, gpu_count=8, region="eu"))
        await insert(connection, "leases", a_row("leases", A, name="train-1"))
    await owner.close()
    url = login_url(database_url, Role.RECONCILER)
    database = Database(url, role=Role.RECONCILER, pool_size=2, readers=1)
    yield database
    await database.close()


def a_sample(sequence: int) -> Sample:
    """Of the same two cards each time."""
    gpus = [
        replace(gpu, uuid=f"GPU-{index:08x}-0000-0000-0000-000000000000")
        for index, gpu in enumerate(busy_sample(sequence, gpus=2).gpus)
    ]
    return replace(busy_sample(sequence, gpus=2), sequence=sequence, gpus=tuple(gpus))


async def receive(db: Database, count: int, *, first: int = 1, at: datetime = NOW) -> None:
    """Samples of one machine, 15 s apart, the last one at `at`."""
    lease = a_row("leases", A)
    claim = ClaimId(UUID(int=7))
    new = []
    for number in range(count):
        sample = a_sample(first + number)
        moment = at - (count - 1 - number) * STEP
        new.append(
            NewSample(
                organization_id=OrganizationId(A),
                project_id=ProjectId(a_row("projects", A)["id"]),
                claim_id=claim,
                lease_id=LeaseId(lease["id"]),
                machine_id=MachineId(a_row("machines", A)["id"]),
                sequence=sample.sequence,
                at=moment,
                received_at=moment,
                skew_ms=0,
                notable=False,
                document=encode_sample(sample).decode(),
            )
        )
    async with db.transaction() as connection:
        await samples.insert(connection, new)


class Store:
    """Takes requests, and answers with the statuses that a test wants."""

    def __init__(self, *statuses: int | OSError) -> None:
        self.answers = list(statuses)
        self.bodies: list[bytes] = []

    async def __call__(self, url: str, token: Path | None, body: bytes, headers: Mapping[str, str]) -> int:
        answer = self.answers.pop(0) if self.answers else 204
        if isinstance(answer, OSError):
            raise answer
        self.bodies.append(body)
        return answer


def a_world(
    db: Database, store: Store | None = None, *, now: datetime = NOW, url: str = URL
) -> TelemetryWorld:
    world = TelemetryWorld(db=db, now=lambda: now, new_id=uuid7, targets=(Target("store", url),))
    return world if store is None else replace(world, post=store)


async def _begun(db: Database) -> None:
    """A target that has been there since before the samples."""
    async with db.transaction() as connection:
        statement = "INSERT INTO sample_exports VALUES ('store', '2000-01-01Z', gen_random_uuid(), 0)"
        await connection.execute(text(statement))


async def test_a_store_that_was_away_gets_what_it_missed_and_then_nothing_twice(reconciler: Database) -> None:
    await _begun(reconciler)
    await receive(reconciler, 3, at=NOW - timedelta(seconds=10))
    store = Store(OSError("ConnectError"), 503, 429)
    for why in ("no answer", "503", "429"):
        report = await write_samples.activate(a_world(reconciler, store))
        assert report.acted_on == 0
        assert why in report.errors[0]
    assert (await write_samples.activate(a_world(reconciler, store))).acted_on == 3
    assert (await write_samples.activate(a_world(reconciler, store))).acted_on == 0
    assert len(store.bodies) == 3, "those that it refused, and the one that it took"


async def test_a_store_that_calls_samples_wrong_is_not_sent_them_again(reconciler: Database) -> None:
    await _begun(reconciler)
    await receive(reconciler, 2, at=NOW - timedelta(seconds=10))
    store = Store(400)
    report = await write_samples.activate(a_world(reconciler, store))
    assert (report.acted_on, len(report.notes)) == (2, 1)
    assert (await write_samples.activate(a_world(reconciler, store))).acted_on == 0


async def test_a_new_store_begins_now_and_a_sample_that_may_not_be_committed_yet_waits(
    reconciler: Database,
) -> None:
    await receive(reconciler, 2, at=NOW - timedelta(minutes=5))
    store = Store()
    assert (await write_samples.activate(a_world(reconciler, store))).acted_on == 0
    await receive(reconciler, 1, first=10, at=NOW)
    assert (await write_samples.activate(a_world(reconciler, store))).acted_on == 0
    later = a_world(reconciler, store, now=NOW + timedelta(seconds=6))
    assert (await write_samples.activate(later)).acted_on == 1


@needs_prometheus
async def test_a_real_prometheus_shows_what_the_machine_measured(reconciler: Database) -> None:
    await _begun(reconciler)
    with prometheus("global: {scrape_interval: 1h}") as url:
        await receive(reconciler, 40, at=NOW - timedelta(seconds=10))
        world = a_world(reconciler, url=f"{url}/api/v1/write")
        report = await write_samples.activate(world)
        assert (report.acted_on, report.errors, report.notes) == (40, [], [])
        async with httpx.AsyncClient(base_url=url) as client:

            async def query(expression: str) -> list[Series]:
                answer = await client.get(
                    "/api/v1/query", params={"query": expression, "time": NOW.timestamp()}
                )
                return msgspec.convert(answer.json()["data"]["result"], list[Series])

            power = await query("DCGM_FI_DEV_POWER_USAGE")
            assert {series.metric["gpu"] for series in power} == {"0", "1"}
            assert {series.metric["Hostname"] for series in power} == {"train-1"}
            (count,) = await query('count_over_time(DCGM_FI_DEV_GPU_UTIL{gpu="0"}[1h])')
            assert count.value[1] == "40"
            expected = a_sample(40).gpus[1].power_mw
            (second,) = await query('DCGM_FI_DEV_POWER_USAGE{gpu="1"}')
            assert float(second.value[1]) == (expected or 0) / 1000
            assert await query("vllm:num_requests_waiting")


def test_a_file_of_targets_that_cannot_be_used_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "targets.toml"
    path.write_text('[[target]]\nname = "a"\nurl = "https://a/push"\ntoken_path = "/t"\n')
    assert targets.read(path) == (Target("a", "https://a/push", Path("/t")),)
    assert targets.read(None) == ()
    for wrong in (
        "", "[target", '[[target]]\nname = "a"', '[[target]]\nname = "a"\nurl = "ftp://a"',
        '[[target]]\nname = "a"\nurl = "https://u:secret@a/"', '[[target]]\nname = "a"\nurl = "https://a"\nmore = "x"',
        '[[target]]\nname = "a"\nurl = "https://a"\n[[target]]\nname = "a"\nurl = "https://b"', "[other]\na = 1",
    ):  # fmt: skip
        path.write_text(wrong)
        with pytest.raises(SettingsError, match="SPLITPLANE_REMOTE_WRITE") as refused:
            targets.read(path)
        assert "secret" not in str(refused.value)
