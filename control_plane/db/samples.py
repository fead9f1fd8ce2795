"""What agents measured lately: samples are added in batches, and read by machine, by lease, or as what is notable.

A sample is a claim of its machine's. Readers get what is stored as it is: see data_plane/documents/sample.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.reach import reach_values, within
from control_plane.db.rows import convert, read, read_one, write
from control_plane.db.tables.telemetry import SAMPLE_SLOTS
from control_plane.domain.access import Reach
from control_plane.domain.gpu_faults import LOADED_PERCENT, ShownLink
from control_plane.domain.health import Verdict
from control_plane.domain.ids import ClaimId, LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.reading import Reading

HOUR_SECONDS = 3600
SETTLED_AFTER = timedelta(seconds=5)
"""How far readers stay behind the present, for clocks of hosts that differ a little."""
_WRITERS = 4712
"""The class of the advisory locks that transactions hold while they add samples. The object is when they began."""
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose credential it is."""

    digest: str
    organization_id: OrganizationId
    project_id: ProjectId
    claim_id: ClaimId
    lease_id: LeaseId
    machine_id: MachineId
    ended: bool
    """The claim has ended: the machine is not this lease's any more."""


@dataclass(frozen=True, slots=True)
class NewSample:
    organization_id: OrganizationId
    project_id: ProjectId
    claim_id: ClaimId
    lease_id: LeaseId
    machine_id: MachineId
    sequence: int
    at: datetime
    received_at: datetime
    skew_ms: int
    notable: bool
    document: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class StoredSample:
    organization_id: OrganizationId
    project_id: ProjectId
    claim_id: ClaimId
    lease_id: LeaseId
    machine_id: MachineId
    sequence: int
    """Of its claim."""
    at: datetime
    """When it was read, by our clock."""
    received_at: datetime
    skew_ms: int
    """How far the machine's clock is ahead of ours."""
    notable: bool
    document: Mapping[str, Any]
    """A data_plane.documents.sample.Sample, as JSON."""

    def reading(self) -> Reading:
        return convert(self.document, Reading)


@dataclass(frozen=True, slots=True)
class NamedSample(StoredSample):
    """A sample with what names its machine."""

    gpu_model: str | None
    provider: str
    region: str
    lease: str
    project: str
    verdict: Verdict | None
    """None: no fault of the machine was ever found."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place of a sample in the order in which they were received."""

    received_at: datetime
    claim_id: ClaimId
    sequence: int


COLUMNS = (
    "organization_id",
    "project_id",
    "claim_id",
    "lease_id",
    "machine_id",
    "sequence",
    "at",
    "received_at",
    "skew_ms",
    "notable",
    "document",
)
"""Those of a StoredSample."""
_COLUMNS = ", ".join(COLUMNS)
_OF = ", ".join(f"s.{name}" for name in COLUMNS)
# No RETURNING and no target of the conflict: either one needs the right to read. Arrays, because the database reads a
# document in them once, and in a JSON parameter twice.
_INSERT = text(f"""
INSERT INTO samples (slot, {_COLUMNS})
SELECT mod(floor(extract(epoch FROM new.received_at) / {HOUR_SECONDS})::bigint, {SAMPLE_SLOTS}), new.*
FROM (SELECT * FROM unnest(CAST(:organization_id AS uuid[]), CAST(:project_id AS uuid[]), CAST(:claim_id AS uuid[]),
    CAST(:lease_id AS uuid[]), CAST(:machine_id AS uuid[]), CAST(:sequence AS bigint[]), CAST(:at AS timestamptz[]),
    CAST(:received_at AS timestamptz[]), CAST(:skew_ms AS integer[]), CAST(:notable AS boolean[]),
    CAST(CAST(:document AS text[]) AS jsonb[])) AS new({_COLUMNS})) new
ON CONFLICT DO NOTHING
""")
_ENTER = text("SELECT pg_advisory_xact_lock_shared(CAST(:class AS integer), CAST(:second AS integer))")
_FIRST_WRITER = text("""
SELECT min(objid::bigint) FROM pg_locks
WHERE locktype = 'advisory' AND classid = :class AND objsubid = 2
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
HAVING count(*) > 0
""")
_SENDERS = text("""
SELECT digest, organization_id, project_id, claim_id, lease_id, machine_id, ended
FROM sample_senders(CAST(:digests AS text[]))
""")
_EMPTY = text("SELECT empty_samples(:moment, :kept_hours)")
_LATEST = text(f"""
SELECT {_OF} FROM agents a CROSS JOIN LATERAL (
  SELECT {_COLUMNS} FROM samples WHERE samples.claim_id = a.claim_id ORDER BY samples.at DESC LIMIT 1) s
WHERE a.machine_id = ANY(CAST(:ids AS uuid[])) AND a.ended_at IS NULL
""")
_LATEST_OF_LEASES = text(f"""
SELECT {_OF} FROM agents a CROSS JOIN LATERAL (
  SELECT {_COLUMNS} FROM samples WHERE samples.claim_id = a.claim_id ORDER BY samples.at DESC LIMIT 1) s
WHERE a.lease_id = ANY(CAST(:ids AS uuid[])) AND a.ended_at IS NULL
""")
_WINDOW = text(f"""
SELECT {_OF} FROM agents a JOIN samples s ON s.claim_id = a.claim_id
WHERE a.lease_id = :lease_id AND s.at >= :since ORDER BY s.at DESC, s.claim_id, s.sequence LIMIT :limit
""")
# The last sample of each step, so that no more are read than are shown.
_POINTS = text(f"""
SELECT DISTINCT ON (floor(extract(epoch FROM s.at) / CAST(:seconds AS double precision)), s.claim_id) {_OF}
FROM agents a JOIN samples s ON s.claim_id = a.claim_id
WHERE a.lease_id = :lease_id AND s.at > :since
ORDER BY floor(extract(epoch FROM s.at) / CAST(:seconds AS double precision)), s.claim_id, s.at DESC LIMIT :limit
""")
_LINKS = text("""
SELECT gpu->>'uuid' AS uuid, max(CAST(gpu->>'pcie_generation' AS integer)) AS generation
FROM agents a JOIN samples s ON s.claim_id = a.claim_id, jsonb_array_elements(s.document->'gpus') gpu
WHERE a.machine_id = :machine_id AND a.ended_at IS NULL
  AND CAST(gpu->>'utilisation_percent' AS integer) >= :loaded
  AND gpu->>'pcie_generation' IS NOT NULL AND gpu->>'uuid' IS NOT NULL
GROUP BY 1
""")
# What is exported names its machine as customers know it.
_LATEST_NAMED = text(
    """
SELECT {of}, m.gpu_model, m.provider, m.region, l.name AS lease, p.name AS project, h.verdict
FROM agents a JOIN machines m ON m.id = a.machine_id JOIN leases l ON l.id = a.lease_id
  JOIN projects p ON p.id = l.project_id
  LEFT JOIN machine_health h ON h.machine_id = a.machine_id
  CROSS JOIN LATERAL (
    SELECT {columns} FROM samples WHERE samples.claim_id = a.claim_id ORDER BY samples.at DESC LIMIT 1) s
WHERE a.ended_at IS NULL AND s.at > :since AND (CAST(:after AS uuid) IS NULL OR a.claim_id > :after)
  AND {reach}
ORDER BY a.claim_id LIMIT :limit
""".format(of=_OF, columns=_COLUMNS, reach=within("l"))
)
# Each sample with what names its machine now. Whatever it refers to is kept for ever.
_RECEIVED = text(f"""
SELECT {_OF}, m.gpu_model, m.provider, m.region, l.name AS lease, p.name AS project, h.verdict
FROM (
  SELECT {_COLUMNS} FROM samples
  WHERE received_at < :before
    AND (received_at, claim_id, sequence) > (:received_at, CAST(:claim_id AS uuid), CAST(:sequence AS bigint))
  ORDER BY received_at, claim_id, sequence LIMIT :limit) s
JOIN machines m ON m.id = s.machine_id JOIN leases l ON l.id = s.lease_id JOIN projects p ON p.id = s.project_id
LEFT JOIN machine_health h ON h.machine_id = s.machine_id
ORDER BY s.received_at, s.claim_id, s.sequence
""")
_LATEST_NAMED_OF_ALL = text(f"""
SELECT {_COLUMNS}, gpu_model, provider, region, lease, project, verdict
FROM fleet_samples(CAST(:since AS timestamptz), CAST(:after AS uuid), CAST(:limit AS integer))
""")
_NOTABLE = text(f"""
SELECT {_COLUMNS} FROM samples
WHERE notable AND received_at < :before
  AND (CAST(:received_at AS timestamptz) IS NULL
       OR (received_at, claim_id, sequence) > (:received_at, CAST(:claim_id AS uuid), CAST(:sequence AS bigint)))
ORDER BY received_at, claim_id, sequence LIMIT :limit
""")


def slot_of(received_at: datetime) -> int:
    """The number of the partition of a sample."""
    return int(received_at.timestamp() // HOUR_SECONDS) % SAMPLE_SLOTS


async def insert(connection: Connection, samples: Sequence[NewSample]) -> int:
    """Add samples of any number of machines. Returns how many were new: one that is stored already is left as it is."""
    if not samples:
        return 0
    columns = {name: [getattr(sample, name) for sample in samples] for name in COLUMNS}
    return await write(connection, _INSERT, **columns)


async def enter(connection: Connection, *, now: datetime) -> None:
    """Let readers know, until this transaction ends, that it adds samples that are received from `now` on.

    Their times have to be taken after this returned.
    """
    second = (now - _EPOCH) // timedelta(seconds=1)
    await connection.execute(_ENTER, {"class": _WRITERS, "second": second})


async def receive(
    connection: Connection, samples: Sequence[NewSample], *, now: Callable[[], datetime]
) -> int:
    """Add samples as `insert` does, received now: however long they waited, no reader has passed that moment."""
    await enter(connection, now=now())
    received_at = now()
    return await insert(connection, [replace(sample, received_at=received_at) for sample in samples])


async def settled(connection: Connection, *, now: datetime) -> datetime:
    """The moment before which all samples that were ever received are committed and visible to the next statement.

    Whoever walks through samples with a cursor reads those before it. A transaction that stalls holds it up for as long
    as that takes: it has the lock of `enter`, and one that has none yet stamps its samples later than this moment.
    """
    first = await read_one(connection, _FIRST_WRITER, int, **{"class": _WRITERS})
    before = now - SETTLED_AFTER
    return before if first is None else min(before, _EPOCH + timedelta(seconds=first))


async def senders(connection: Connection, digests: Sequence[str]) -> list[Sender]:
    """Whose the credentials with these SHA-256 digests are, of those that are known."""
    return await read(connection, _SENDERS, Sender, digests=list(digests)) if digests else []


async def empty(connection: Connection, *, now: datetime, kept_hours: int) -> int:
    """Empty the partitions that hold only samples of hours before the last `kept_hours` full ones. Returns how many."""
    emptied = await read_one(connection, _EMPTY, int, moment=now, kept_hours=kept_hours)
    return emptied or 0


async def latest(connection: Connection, machine_ids: Sequence[MachineId]) -> list[StoredSample]:
    """The last sample of each open claim on these machines, of those that sent one."""
    return await read(connection, _LATEST, StoredSample, ids=list(machine_ids)) if machine_ids else []


async def latest_of_leases(connection: Connection, lease_ids: Sequence[LeaseId]) -> list[StoredSample]:
    """The last sample of each open claim of these leases, of those that sent one."""
    return await read(connection, _LATEST_OF_LEASES, StoredSample, ids=list(lease_ids)) if lease_ids else []


async def window(
    connection: Connection, lease_id: LeaseId, since: datetime, *, limit: int = 10_000
) -> list[StoredSample]:
    """The samples of all machines that the lease has or had, from `since` on, newest first."""
    return await read(connection, _WINDOW, StoredSample, lease_id=lease_id, since=since, limit=limit)


async def links_shown(connection: Connection, machine_id: MachineId) -> list[ShownLink]:
    """The fastest PCIe links of a machine's GPUs at work, by the samples of the last hours."""
    return await read(connection, _LINKS, ShownLink, machine_id=machine_id, loaded=LOADED_PERCENT)


async def points(
    connection: Connection, lease_id: LeaseId, since: datetime, *, step: timedelta, limit: int
) -> list[StoredSample]:
    """The last sample of each step since then, of each machine of the lease, oldest first."""
    values = {"lease_id": lease_id, "since": since, "seconds": step.total_seconds(), "limit": limit}
    return await read(connection, _POINTS, StoredSample, **values)


async def latest_named(
    connection: Connection, reach: Reach, *, since: datetime, after: ClaimId | None, limit: int
) -> list[NamedSample]:
    """The last sample of each machine that sent one since then, by the ids of their claims, behind `after`."""
    values = {"since": since, "after": after, "limit": limit, **reach_values(reach)}
    return await read(connection, _LATEST_NAMED, NamedSample, **values)


async def latest_named_of_all(
    connection: Connection, *, since: datetime, after: ClaimId | None, limit: int
) -> list[NamedSample]:
    """The same of everybody, while the API acts for the platform's organization; otherwise of nobody."""
    return await read(connection, _LATEST_NAMED_OF_ALL, NamedSample, since=since, after=after, limit=limit)


async def received_since(
    connection: Connection, cursor: Cursor, *, before: datetime, limit: int
) -> list[NamedSample]:
    """Samples behind the cursor that were received before `before`, in the order in which they were received.

    With `before` as `settled` says none is ever missed.
    """
    values = {"received_at": cursor.received_at, "claim_id": cursor.claim_id, "sequence": cursor.sequence}
    return await read(connection, _RECEIVED, NamedSample, **values, before=before, limit=limit)


async def notable_since(
    connection: Connection, cursor: Cursor | None, *, before: datetime, limit: int
) -> list[StoredSample]:
    """Notable samples behind the cursor that were received before `before`, in the order in which they were received.

    With `before` as `settled` says none is ever missed.
    """
    values = {
        "received_at": None if cursor is None else cursor.received_at,
        "claim_id": None if cursor is None else cursor.claim_id,
        "sequence": None if cursor is None else cursor.sequence,
    }
    return await read(connection, _NOTABLE, StoredSample, **values, before=before, limit=limit)
