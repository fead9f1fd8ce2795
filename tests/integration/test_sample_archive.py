"""Hours of samples as Parquet, in a folder and in S3 (moto): what is kept, what waits, what is lost, and what is deleted."""

import asyncio
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import boto3
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import IncompleteReadError
from moto import mock_aws
from sqlalchemy import text

from control_plane.db import sample_archives, samples
from control_plane.db.engine import Database, Role
from control_plane.db.samples import NewSample, StoredSample
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.sample_archive import HOUR, KEPT_HOURS_MAX
from control_plane.world import uuid7
from data_plane.documents.sample import encode_sample
from environment.reading import SettingsError
from reconciler import sample_archiving
from reconciler.archive import ArchiveError, FolderArchive
from reconciler.loops.housekeeping import empty_samples
from reconciler.loops.telemetry import archive_samples
from reconciler.s3_archive import S3Archive
from reconciler.settings import TelemetrySettings
from reconciler.worlds.telemetry import SampleArchive, TelemetryWorld
from tests.support.archive import Shelf
from tests.support.database import login_url
from tests.support.rows import rows
from tests.support.samples import busy_sample

pytestmark = pytest.mark.database
HOUR_AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
AFTER = HOUR_AT + HOUR + timedelta(minutes=3)
ONE, OTHER = OrganizationId(UUID(int=1)), OrganizationId(UUID(int=2))
STEP = timedelta(seconds=15)


@pytest.fixture
async def reconciler(database_url: str) -> AsyncIterator[Database]:
    url = login_url(database_url, Role.RECONCILER)
    database = Database(url, role=Role.RECONCILER, pool_size=2, readers=2)
    yield database
    await database.close()


async def receive(
    db: Database,
    organization_id: OrganizationId = ONE,
    *,
    claim: int = 7,
    count: int = 240,
    at: datetime = HOUR_AT,
    notable: Sequence[int] = (),
) -> None:
    """Samples of one machine from `at` on, 15 s apart, some of which are notable."""
    new = [
        NewSample(
            organization_id=organization_id,
            project_id=ProjectId(UUID(int=11)),
            claim_id=ClaimId(UUID(int=claim)),
            lease_id=LeaseId(UUID(int=13)),
            machine_id=MachineId(UUID(int=14)),
            sequence=int((at + number * STEP).timestamp()),
            at=at + number * STEP,
            received_at=at + number * STEP,
            skew_ms=-3,
            notable=number in notable,
            document=encode_sample(busy_sample(number + 1, gpus=2)).decode(),
        )
        for number in range(count)
    ]
    async with db.transaction() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        await samples.insert(connection, new)


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, role=None, pool_size=1, readers=1)
    yield database
    await database.close()


def a_world(db: Database, store: Any, *, now: datetime = AFTER, every_seconds: int = 60) -> TelemetryWorld:
    archive = SampleArchive(store, every_seconds, kept_days=90)
    return TelemetryWorld(db=db, now=lambda: now, new_id=uuid7, archive=archive)


def table(store: Shelf, key: str) -> Any:
    return pq.read_table(io.BytesIO(store.objects[key]))


async def _hours(db: Database) -> list[Any]:
    async with db.reading() as connection:
        statement = "SELECT hour, rows, written_at, lost_at, deleted_at FROM sample_archives ORDER BY hour"
        return list(await rows(connection, text(statement)))


def _keys(store: Shelf, beginning: str) -> list[str]:
    return sorted(key for key in store.objects if key.startswith(beginning))


async def test_an_hour_is_written_once_with_the_last_sample_of_each_minute_and_all_that_are_notable(
    owner: Database, reconciler: Database
) -> None:
    await receive(owner, notable=(0, 1, 9))
    await receive(owner, OTHER, claim=8, count=4)
    store = Shelf()
    report = await archive_samples.activate(a_world(reconciler, store))
    assert not report.errors
    assert report.acted_on == 2, "the hour before it has no samples, which its manifest says"
    (ours,), (theirs,) = (
        _keys(store, f"organization=org_{ONE.hex}"),
        _keys(store, f"organization=org_{OTHER.hex}"),
    )
    assert ours.endswith("/date=2026-11-28/hour=12/samples-000.parquet")
    found = table(store, ours)
    assert found.num_rows == 60 + 3
    assert {str(field.type) for field in found.schema} == {"string", "int64", "bool", "timestamp[us, tz=UTC]"}
    first = found.to_pylist()[0]
    assert first["at"] == HOUR_AT
    assert (first["notable"], first["skew_ms"], first["organization_id"]) == (True, -3, f"org_{ONE.hex}")
    assert json.loads(first["document"])["gpus"][0]["utilisation_percent"] is not None
    (theirs_at,) = table(store, theirs).column("at").to_pylist()
    assert theirs_at == HOUR_AT + 3 * STEP, "the last one of the minute"
    said = json.loads(store.objects["manifests/date=2026-11-28/hour=12.json"])
    assert (said["received"], said["rows"]) == (244, 64)
    for file in said["files"]:
        content = store.objects[file["key"]]
        assert (file["bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    before = dict(store.objects)
    assert (await archive_samples.activate(a_world(reconciler, store))).acted_on == 0
    assert store.objects == before


async def test_the_rule_may_keep_every_sample_and_a_replica_writes_the_same_bytes(
    owner: Database, reconciler: Database
) -> None:
    await receive(owner, count=40)
    one, other = Shelf(), Shelf()
    world = a_world(reconciler, one, every_seconds=15)
    await archive_samples.activate(world)
    assert table(one, _keys(one, "organization=")[0]).num_rows == 40
    async with owner.transaction() as connection:
        await connection.execute(text("DELETE FROM sample_archives"))
    await archive_samples.activate(a_world(reconciler, other, every_seconds=15))
    assert one.objects == other.objects


async def test_an_hour_that_runs_waits_and_many_claims_become_several_row_groups(
    owner: Database, reconciler: Database
) -> None:
    for claim in range(archive_samples.CLAIMS_PER_READ_MAX + 1):
        await receive(owner, claim=100 + claim, count=2)
    store = Shelf()
    early = await archive_samples.activate(a_world(reconciler, store, now=HOUR_AT + HOUR))
    assert not early.errors
    assert not _keys(store, "organization="), "a sample of its last second may not be committed yet"
    await archive_samples.activate(a_world(reconciler, store))
    (key,) = _keys(store, "organization=")
    file = pq.ParquetFile(io.BytesIO(store.objects[key]))
    assert (file.metadata.num_row_groups, file.metadata.num_rows) == (2, 11)


async def test_a_machine_that_sends_notable_samples_all_the_time_is_read_in_pages_and_fills_its_own_files(
    owner: Database, reconciler: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_samples, "SAMPLES_PER_READ_MAX", 50)
    monkeypatch.setattr(archive_samples, "FILE_BYTES_MAX", 10_000)
    most = 0
    of_claims = sample_archives.of_claims

    async def counted(*args: Any, **more: Any) -> list[StoredSample]:
        nonlocal most
        found = await of_claims(*args, **more)
        most = max(most, len(found))
        return found

    monkeypatch.setattr(sample_archives, "of_claims", counted)
    await receive(owner, claim=100, count=20)
    await receive(owner, claim=101, count=220, notable=range(220))
    await receive(owner, claim=102, count=20)
    store = Shelf()
    assert not (await archive_samples.activate(a_world(reconciler, store))).errors
    found = [table(store, key).column("claim_id").to_pylist() for key in _keys(store, "organization=")]
    counts = Counter(claim for claims in found for claim in claims)
    assert sorted(counts.values()) == [5, 5, 220]
    assert most == 50
    assert len(found) > 1
    said = json.loads(store.objects["manifests/date=2026-11-28/hour=12.json"])
    assert [file["rows"] for file in said["files"]] == [len(claims) for claims in found]


async def test_an_hour_that_cannot_be_written_stays_until_its_partition_is_needed_and_is_then_an_error(
    owner: Database, reconciler: Database
) -> None:
    await receive(owner, count=8)
    store = Shelf()
    store.fails = True
    for hours in range(1, KEPT_HOURS_MAX + 1):
        now = HOUR_AT + HOUR * hours + timedelta(minutes=30)
        refused = await archive_samples.activate(a_world(reconciler, store, now=now))
        assert refused.errors == ["S3 answers AccessDenied"], "it is told each time"
        report = await empty_samples.activate(a_world(reconciler, store, now=now))
        assert (report.acted_on, report.errors) == (0, []), hours
    now = HOUR_AT + HOUR * (KEPT_HOURS_MAX + 1) + timedelta(minutes=1)
    report = await empty_samples.activate(a_world(reconciler, store, now=now))
    assert report.acted_on == 1
    assert "the samples of 2026-11-28 12:00 UTC were emptied before they were archived" in report.errors
    store.fails = False
    await archive_samples.activate(a_world(reconciler, store, now=now))
    assert not _keys(store, "manifests/date=2026-11-28/hour=12"), "an hour that is lost has no manifest"
    assert {row.hour for row in await _hours(reconciler) if row.lost_at} >= {HOUR_AT}


async def test_an_hour_that_is_written_is_emptied_as_without_an_archive(
    owner: Database, reconciler: Database
) -> None:
    await receive(owner, count=8)
    store = Shelf()
    await archive_samples.activate(a_world(reconciler, store))
    now = HOUR_AT + 3 * HOUR + timedelta(minutes=1)
    await archive_samples.activate(a_world(reconciler, store, now=now))
    report = await empty_samples.activate(a_world(reconciler, store, now=now))
    assert (report.acted_on, report.errors) == (1, [])


async def test_an_hour_that_is_emptied_while_it_is_written_has_no_manifest(
    owner: Database, reconciler: Database
) -> None:
    """Otherwise the manifest would say that a part of the hour is all of it."""
    await receive(owner, count=8)
    late = HOUR_AT + HOUR * (KEPT_HOURS_MAX + 1) + timedelta(minutes=1)

    class Slow(Shelf):
        async def put(self, key: str, body: bytes, content_type: str = "") -> None:
            if key.startswith("organization="):
                await empty_samples.activate(a_world(reconciler, self, now=late))
            await super().put(key, body, content_type)

    store = Slow()
    await archive_samples.activate(a_world(reconciler, store))
    assert _keys(store, "organization=")
    assert not _keys(store, "manifests/date=2026-11-28/hour=12")


async def test_a_replica_that_goes_on_after_the_hour_was_emptied_replaces_no_file_of_another_one(
    owner: Database, reconciler: Database
) -> None:
    for claim, organization_id in ((7, ONE), (8, OTHER)):
        await receive(owner, organization_id, claim=claim, count=8)
    late = HOUR_AT + HOUR * (KEPT_HOURS_MAX + 1) + timedelta(minutes=1)
    other = Shelf()

    class Stalling(Shelf):
        async def put(self, key: str, body: bytes, content_type: str = "") -> None:
            await super().put(key, body, content_type)
            if key.startswith("organization=") and not _keys(other, "manifests/date=2026-11-28/hour=12"):
                await archive_samples.activate(a_world(reconciler, other))
                await empty_samples.activate(a_world(reconciler, other, now=late))

    stalled = Stalling()
    stalled.objects = other.objects
    await archive_samples.activate(a_world(reconciler, stalled))
    for key in _keys(other, "organization="):
        assert table(other, key).num_rows == 2, key


async def test_files_are_deleted_when_they_are_old_and_the_manifest_goes_last(
    owner: Database, reconciler: Database
) -> None:
    await receive(owner, count=8)
    store = Shelf()
    await archive_samples.activate(a_world(reconciler, store))
    assert _keys(store, "organization=")
    later = AFTER + timedelta(days=91)
    store.fails = True
    assert (await archive_samples.activate(a_world(reconciler, store, now=later))).errors
    store.fails = False
    await archive_samples.activate(a_world(reconciler, store, now=later))
    assert not _keys(store, "organization=")
    assert not [key for key in store.objects if "2026-11-28" in key]
    assert [row.hour for row in await _hours(reconciler) if row.deleted_at] == [
        HOUR_AT + HOUR * hours for hours in (-1, 0, 1)
    ]


async def test_without_an_archive_nothing_is_stored_or_kept_for_longer(
    owner: Database, reconciler: Database
) -> None:
    await receive(owner, count=8)
    world = replace(a_world(reconciler, Shelf(), now=HOUR_AT + 3 * HOUR), archive=None)
    assert (await archive_samples.activate(world)).looked_at == 0
    assert await _hours(reconciler) == []
    assert (await empty_samples.activate(world)).acted_on == 1


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="history")
        yield client


async def test_a_folder_and_a_bucket_hold_the_same_and_lose_it_again(
    owner: Database, reconciler: Database, tmp_path: Path, bucket: Any
) -> None:
    await receive(owner, count=8)
    folder = FolderArchive(tmp_path / "history")
    await archive_samples.activate(a_world(reconciler, folder))
    async with owner.transaction() as connection:
        await connection.execute(text("DELETE FROM sample_archives"))
    in_s3 = S3Archive("history", bucket, prefix="/splitplane/")
    await archive_samples.activate(a_world(reconciler, in_s3))
    listed = bucket.list_objects_v2(Bucket="history")["Contents"]
    files = {
        path.relative_to(tmp_path / "history").as_posix() for path in (tmp_path / "history").rglob("*.*")
    }
    assert {entry["Key"].removeprefix("splitplane/") for entry in listed} == files
    assert len(files) == 3
    for name in files:
        assert await folder.get(name) == await in_s3.get(name)
    for store in (folder, in_s3):
        assert await store.get("nothing") is None
        await store.delete([*files, "nothing"])
    assert "Contents" not in bucket.list_objects_v2(Bucket="history")
    assert not await asyncio.to_thread(lambda: list((tmp_path / "history").iterdir()))


async def test_replicas_that_write_the_same_file_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, written = FolderArchive(tmp_path), Path.write_bytes

    def while_another_one_writes(path: Path, body: bytes) -> int:
        monkeypatch.setattr(Path, "write_bytes", written)
        size = written(path, body)
        asyncio.run(FolderArchive(tmp_path).put("below/file", b"the same"))
        return size

    monkeypatch.setattr(Path, "write_bytes", while_another_one_writes)
    await folder.put("below/file", b"the same")
    assert await folder.get("below/file") == b"the same"
    assert [path.name for path in (tmp_path / "below").iterdir()] == ["file"]


async def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_anybody_relies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, replaced, done = os.fsync, Path.replace, list[str]()

    def sync(descriptor: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().suffix or 'folder'}")
        synced(descriptor)

    def replace(path: Path, target: Path) -> Path:
        done.append("replace")
        return replaced(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    await FolderArchive(tmp_path).put("below/file", b"body")
    assert done == ["sync .partial", "replace", "sync folder"]


async def test_a_store_that_refuses_is_an_error_without_a_secret(tmp_path: Path, bucket: Any) -> None:
    for store in (S3Archive("missing", bucket), FolderArchive(tmp_path / "file" / "below")):
        (tmp_path / "file").write_text("a file, and no folder")
        with pytest.raises(ArchiveError) as refused:
            await store.put("key", b"body")
        assert "testing" not in str(refused.value)


def test_the_setting_is_a_folder_or_a_bucket_and_nothing_else(tmp_path: Path) -> None:
    assert sample_archiving.opened(TelemetrySettings()) is None
    opened = sample_archiving.opened(TelemetrySettings(sample_archive=str(tmp_path), sample_archive_days=7))
    assert opened is not None
    assert (type(opened.store), opened.every_seconds, opened.kept_days) == (FolderArchive, 60, 7)
    in_s3 = sample_archiving.opened(TelemetrySettings(sample_archive="s3://bucket/prefix"))
    assert in_s3 is not None
    assert isinstance(in_s3.store, S3Archive)
    for place in ("gs://bucket", "s3://", "s3://key:secret@bucket"):
        with pytest.raises(SettingsError, match="SPLITPLANE_SAMPLE_ARCHIVE"):
            sample_archiving.opened(TelemetrySettings(sample_archive=place))


async def test_an_object_that_breaks_off_while_it_is_read_is_a_failure_of_the_archive() -> None:
    class Breaking:
        def read(self) -> bytes:
            raise IncompleteReadError(actual_bytes=1, expected_bytes=2)

    class Client:
        def get_object(self, **_: object) -> dict[str, object]:
            return {"Body": Breaking()}

    with pytest.raises(ArchiveError, match="S3: IncompleteReadError at get_object in samples"):
        await S3Archive("samples", Client()).get("manifests/one.json")
