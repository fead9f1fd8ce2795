"""The history of samples as files: what of an hour is kept, where it lies, and how long.

Samples stay in the database for a few hours (docs/decisions/0091). Where an archive is configured, each hour is written
there before its partition is emptied: of every machine the last sample of each `every_seconds`, and all that are
notable. The files lie by organization, date and hour, with a manifest for each hour that names them with their digests.

An hour that cannot be written is kept in the database for as long as its partition is not needed again, and no longer:
telemetry goes on, and the loss is an error that somebody reads.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.focus import Column, Kind
from control_plane.domain.ids import OrganizationId, Prefix, on_wire

HOUR = timedelta(hours=1)
KEPT_HOURS = 2
"""Full hours that stay in the database in any case."""
KEPT_HOURS_MAX = 3
"""Full hours that stay while they are not written: of six partitions, one takes what comes, one is the next, and one is
emptied to be the next after that."""
FORMAT = 1
"""Of the manifest."""
COLUMNS = (
    *(Column(name, Kind.TEXT, nullable=False) for name in ("organization_id", "project_id", "lease_id")),
    *(Column(name, Kind.TEXT, nullable=False) for name in ("machine_id", "claim_id")),
    Column("sequence", Kind.INTEGER, nullable=False),
    Column("at", Kind.TIME, nullable=False),
    Column("received_at", Kind.TIME, nullable=False),
    Column("skew_ms", Kind.INTEGER, nullable=False),
    Column("notable", Kind.FLAG, nullable=False),
    Column("document", Kind.JSON, nullable=False),
)
"""Those of a file: docs/telemetry.md. Ids are as the API writes them; `document` is the sample."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    key: str
    organization_id: OrganizationId
    rows: int
    size: int
    """In bytes."""
    sha256: str


def hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def begun(now: datetime) -> list[datetime]:
    """The hours of which an archive has to know now: the one that runs, and the full ones before it that are kept."""
    this = hour_of(now)
    return [this - HOUR * ago for ago in range(KEPT_HOURS, -1, -1)]


def hours_to_keep(unwritten: Collection[datetime], now: datetime) -> int:
    """How many full hours stay in the database, with those that are not written yet."""
    this = hour_of(now)
    ages = [(this - hour) // HOUR for hour in unwritten if hour < this]
    return min(KEPT_HOURS_MAX, max([KEPT_HOURS, *ages]))


def lost(unwritten: Collection[datetime], now: datetime) -> list[datetime]:
    """The hours that were not written and are given up now, oldest first."""
    oldest = hour_of(now) - HOUR * KEPT_HOURS_MAX
    return sorted(hour for hour in unwritten if hour < oldest)


def file_key(organization_id: OrganizationId, hour: datetime, part: int) -> str:
    organization = on_wire(Prefix.ORGANIZATION, organization_id)
    return f"organization={organization}/date={hour:%Y-%m-%d}/hour={hour:%H}/samples-{part:03d}.parquet"


def manifest_key(hour: datetime) -> str:
    return f"manifests/date={hour:%Y-%m-%d}/hour={hour:%H}.json"


def manifest(hour: datetime, files: Sequence[ArchivedFile], *, received: int, every_seconds: int) -> bytes:
    """What an hour has, as JSON. The same hour and rule have the same manifest, byte for byte."""
    content = {
        "format": FORMAT,
        "dataset": "MachineSamples",
        "since": f"{hour:%Y-%m-%dT%H:%M:%SZ}",
        "until": f"{hour + HOUR:%Y-%m-%dT%H:%M:%SZ}",
        "rule": {"every_seconds": every_seconds, "notable": "all"},
        "received": received,
        "rows": sum(file.rows for file in files),
        "columns": [
            {"name": column.name, "type": column.kind.value, "nullable": column.nullable}
            for column in COLUMNS
        ],
        "files": [
            {
                "key": file.key,
                "organization": on_wire(Prefix.ORGANIZATION, file.organization_id),
                "rows": file.rows,
                "bytes": file.size,
                "sha256": file.sha256,
            }
            for file in sorted(files, key=lambda file: file.key)
        ],
    }
    return (json.dumps(content, indent=2) + "\n").encode()


def files_of(content: bytes) -> list[str]:
    """The keys of the files that a manifest names. Raises ValueError when it is none of ours."""
    try:
        keys = [str(file["key"]) for file in json.loads(content)["files"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no manifest of samples: {error}") from error
    for key in keys:
        if not key.startswith("organization=") or ".." in key.split("/"):
            raise ValueError(f"this is no manifest of samples: {key!r} is no file of them")
    return keys
