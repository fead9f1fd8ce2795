"""Writes what machines measured to files, an hour at a time, before its samples are emptied.

Only where an archive is configured (docs/telemetry.md). An hour is written once it is over: a file for every few
hundred claims of each organization, and then the manifest that names them. Their names follow from the hour, so a crash
between two of them, or a second replica, writes the same again. What cannot be written is tried again by the next
activation; `empty_samples` keeps its samples meanwhile, as long as there is room for what comes.

Files that are old are deleted, by the manifest of their hour.
"""

import hashlib
import json
from collections import deque
from datetime import datetime, timedelta
from itertools import count, groupby

from control_plane.db import sample_archives
from control_plane.db.sample_archives import HourSender
from control_plane.db.samples import StoredSample, settled
from control_plane.domain.ids import ClaimId, Prefix, on_wire
from control_plane.domain.sample_archive import (
    COLUMNS,
    HOUR,
    ArchivedFile,
    begun,
    file_key,
    files_of,
    manifest,
    manifest_key,
)
from control_plane.exports.parquet_file import ParquetEncoder
from reconciler.archive import JSON, PARQUET, Archive, ArchiveError
from reconciler.loop import Loop, Report
from reconciler.worlds.telemetry import SampleArchive, TelemetryWorld

NAME = "archive_samples"
CLAIMS_PER_FILE_MAX = 200
CLAIMS_PER_READ_MAX = 10
SAMPLES_PER_READ_MAX = 2_400
"""These are in memory at once: about 15 MB of machines with 8 GPUs. An agent sends 240 an hour, and a hostile machine
sixty times as many, each of them notable."""
FILE_BYTES_MAX = 64 * 1024 * 1024
"""After which the next claims go to another file."""
HOURS_DELETED_PER_ACTIVATION_MAX = 24


async def activate(world: TelemetryWorld) -> Report:
    report = Report()
    if world.archive is None:
        return report
    now = world.now()
    async with world.db.transaction() as connection:
        await sample_archives.begin(connection, begun(now))
        hours = await sample_archives.unwritten(connection)
    async with world.db.reading() as connection:
        before = await settled(connection, now=now)
    try:
        for hour in hours:
            report.looked_at += 1
            if hour + HOUR <= before:
                report.count(await _write(world, world.archive, hour))
        await _delete(world, world.archive, report)
    except ArchiveError as error:
        report.errors.append(str(error))
    return report


async def _write(world: TelemetryWorld, archive: SampleArchive, hour: datetime) -> bool:
    """Write an hour. False when somebody else did, or its samples were emptied meanwhile."""
    async with world.db.reading() as connection:
        senders = await sample_archives.senders(connection, hour)
    files: list[ArchivedFile] = []
    for organization_id, group in groupby(senders, key=lambda sender: sender.organization_id):
        left = deque(group)
        for part in count():
            if not left:
                break
            written = await _write_file(world, archive, hour, file_key(organization_id, hour, part), left)
            if written is None:
                return False
            files.append(written)
    async with world.db.reading() as connection:
        if not await sample_archives.is_open(connection, hour):
            return False
    received = sum(sender.samples for sender in senders)
    body = manifest(hour, files, received=received, every_seconds=archive.every_seconds)
    await archive.store.put(manifest_key(hour), body, JSON)
    async with world.db.transaction() as connection:
        return await sample_archives.written(
            connection,
            hour,
            received=received,
            rows=sum(file.rows for file in files),
            files=len(files),
            size=sum(file.size for file in files),
            sha256=hashlib.sha256(body).digest(),
            now=world.now(),
        )


async def _write_file(
    world: TelemetryWorld,
    archive: SampleArchive,
    hour: datetime,
    key: str,
    left: deque[HourSender],
) -> ArchivedFile | None:
    """Write the samples of the first of the claims that are left, and take these away from there.

    None when the hour is written or lost: perhaps it was emptied before all was read, and the file lacks samples.
    """
    encoder, rows, organization_id, claims = ParquetEncoder(COLUMNS), 0, left[0].organization_id, 0
    body = bytearray(encoder.begin())
    while left and claims < CLAIMS_PER_FILE_MAX and len(body) < FILE_BYTES_MAX:
        some = _some(left)
        claims += len(some)
        after: StoredSample | None = None
        while True:
            async with world.db.reading() as connection:
                found = await sample_archives.of_claims(
                    connection,
                    hour,
                    some,
                    every_seconds=archive.every_seconds,
                    after=after,
                    limit=SAMPLES_PER_READ_MAX,
                )
            rows += len(found)
            body += encoder.encode([_row(sample) for sample in found])
            if len(found) < SAMPLES_PER_READ_MAX:
                break
            after = found[-1]
    body += encoder.end()
    content = bytes(body)
    async with world.db.reading() as connection:
        if not await sample_archives.is_open(connection, hour):
            return None
    await archive.store.put(key, content, PARQUET)
    return ArchivedFile(key, organization_id, rows, len(content), hashlib.sha256(content).hexdigest())


def _some(left: deque[HourSender]) -> list[ClaimId]:
    """The first of the claims that are left, as many as are read together. They are taken away from there."""
    found: list[ClaimId] = []
    samples = 0
    while left and len(found) < CLAIMS_PER_READ_MAX:
        samples += left[0].samples
        if found and samples > SAMPLES_PER_READ_MAX:
            break
        found.append(left.popleft().claim_id)
    return found


def _row(sample: StoredSample) -> tuple[object, ...]:
    return (
        on_wire(Prefix.ORGANIZATION, sample.organization_id),
        on_wire(Prefix.PROJECT, sample.project_id),
        on_wire(Prefix.LEASE, sample.lease_id),
        on_wire(Prefix.MACHINE, sample.machine_id),
        str(sample.claim_id),
        sample.sequence,
        sample.at,
        sample.received_at,
        sample.skew_ms,
        sample.notable,
        json.dumps(sample.document, sort_keys=True, separators=(",", ":")),
    )


async def _delete(world: TelemetryWorld, archive: SampleArchive, report: Report) -> None:
    """Delete the files of hours that are older than they are kept."""
    async with world.db.reading() as connection:
        hours = await sample_archives.old(
            connection,
            before=world.now() - timedelta(days=archive.kept_days),
            limit=HOURS_DELETED_PER_ACTIVATION_MAX,
        )
    for hour in hours:
        report.looked_at += 1
        await _delete_hour(archive.store, hour)
        async with world.db.transaction() as connection:
            await sample_archives.deleted(connection, hour, now=world.now())
        report.count(True)
    report.more = len(hours) == HOURS_DELETED_PER_ACTIVATION_MAX


async def _delete_hour(store: Archive, hour: datetime) -> None:
    """The manifest goes last: without it nobody could tell which files there were."""
    key = manifest_key(hour)
    content = await store.get(key)
    if content is None:
        return  # Somebody else deleted it: another replica, or a rule of the bucket.
    try:
        files = files_of(content)
    except ValueError as error:
        raise ArchiveError(f"{key}: {error}") from None
    await store.delete(files)
    await store.delete([key])


LOOP = Loop(NAME, timedelta(minutes=1), activate, lasts=timedelta(minutes=10))
