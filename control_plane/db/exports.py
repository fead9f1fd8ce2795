"""Queries on exports: their runs, the files that were delivered, and charges with all that a row says of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import document, read, read_one, write
from control_plane.domain.export_run import FileName
from control_plane.domain.focus import ChargeFacts
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import Nano


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRun:
    id: UUID
    organization_id: OrganizationId
    """Who exported."""
    covers_all: bool
    """Whether it has the charges of all organizations, and not only those of its own."""
    period_start: datetime
    final: bool
    seller: str
    cut_at: datetime
    created_at: datetime
    created_by: str
    """The id of a user or a service account."""
    previous_id: UUID | None
    """The run of the same period and kind before it, of which all files were delivered."""
    previous_sha256: bytes | None
    """Of its manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredFile:
    run_id: UUID
    organization_id: OrganizationId
    name: FileName
    size: int
    """In bytes."""
    sha256: bytes
    rows: int
    sums: Mapping[str, str]
    price_books: tuple[int, ...]
    delivered_at: datetime


@dataclass(frozen=True, slots=True)
class ChargeSums:
    """The charges of an organization in a period, added up by the database."""

    charges: int
    amount_nano: Nano
    unit_seconds: int


_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)
_RUN = """
id, organization_id, covers_all, period_start, final, seller, cut_at, created_at, created_by, previous_id,
previous_sha256
"""
_INSERT_RUN = text(f"""
INSERT INTO export_runs ({_RUN})
VALUES (:id, :organization_id, :covers_all, :period_start, :final, :seller, :cut_at, :created_at, :created_by,
        :previous_id, :previous_sha256)
""")
_GET_RUN = text(f"SELECT {_RUN} FROM export_runs WHERE organization_id = :organization_id AND id = :id")
_RUNS = text(f"""
SELECT {_RUN} FROM export_runs
WHERE organization_id = :organization_id AND covers_all = :covers_all
  AND (CAST(:before_at AS timestamptz) IS NULL OR (created_at, id) < (:before_at, CAST(:before_id AS uuid)))
ORDER BY created_at DESC, id DESC LIMIT :limit
""")
_LAST_COMPLETE = text(f"""
SELECT {_RUN} FROM export_runs r
WHERE organization_id = :organization_id AND covers_all = :covers_all AND period_start = :period_start
  AND (SELECT count(*) FROM export_files f WHERE f.run_id = r.id) = {len(FileName)}
ORDER BY created_at DESC, id DESC LIMIT 1
""")
_FILE = "run_id, organization_id, name, size, sha256, rows, sums, price_books, delivered_at"
_FILES = text(f"SELECT {_FILE} FROM export_files WHERE run_id = ANY(:run_ids) ORDER BY run_id, name")
_INSERT_FILE = text(f"""
INSERT INTO export_files ({_FILE})
VALUES (:run_id, :organization_id, :name, :size, :sha256, :rows, CAST(:sums AS jsonb), :price_books, :delivered_at)
ON CONFLICT DO NOTHING
""")
_WITHIN = """
c.organization_id = :organization_id AND c.period = :month AND c.rated_at <= :cut_at
"""
# A page is cut before anything is joined to it: otherwise all charges that are left are joined for every page.
_CHARGES = text(f"""
WITH page AS MATERIALIZED (
  SELECT c.* FROM charges c
  WHERE {_WITHIN} AND (c.started_at, c.id) > (:after_at, CAST(:after_id AS uuid))
  ORDER BY c.started_at, c.id LIMIT :limit
)
SELECT c.id, c.organization_id, o.name AS organization, c.project_id, n.project, c.lease_id, n.lease, c.number,
       c.machine_id, c.provider, c.region, c.sku, s.gpu_model, s.gpu_count, s.capacity, c.purchase, c.sla, c.price_book,
       c.period, c.started_at, c.ended_at, i.unit_seconds_before, c.unit_seconds, c.stopped, c.nano_per_unit_hour,
       c.list_nano_per_unit_hour, c.amount_nano,
       coalesce(n.labels, '{{}}') AS labels, n.node_pool, v.number AS invoice
FROM page c
JOIN intervals i ON i.lease_id = c.lease_id AND i.number = c.number
JOIN organizations o ON o.id = c.organization_id
JOIN skus s ON s.name = c.sku
LEFT JOIN charge_names n ON n.lease_id = c.lease_id AND n.number = c.number
LEFT JOIN invoices v ON v.organization_id = c.organization_id AND v.period = c.period AND v.issued_at <= :invoiced_until
ORDER BY c.started_at, c.id
""")
_SUMS = text(f"""
SELECT count(*) AS charges, coalesce(sum(c.amount_nano), 0)::bigint AS amount_nano,
       coalesce(sum(c.unit_seconds), 0)::bigint AS unit_seconds
FROM charges c WHERE {_WITHIN}
""")


async def insert_run(connection: Connection, run: ExportRun) -> None:
    values = {name: getattr(run, name) for name in ExportRun.__slots__}
    await write(connection, _INSERT_RUN, **values)


async def get_run(connection: Connection, organization_id: OrganizationId, run_id: UUID) -> ExportRun | None:
    return await read_one(connection, _GET_RUN, ExportRun, organization_id=organization_id, id=run_id)


async def runs(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    covers_all: bool,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[ExportRun]:
    """Runs of an organization, newest first; `before` is time and id of the previous page's last run."""
    return await read(
        connection,
        _RUNS,
        ExportRun,
        organization_id=organization_id,
        covers_all=covers_all,
        before_at=before[0] if before else None,
        before_id=before[1] if before else None,
        limit=limit,
    )


async def last_complete_run(
    connection: Connection, organization_id: OrganizationId, *, covers_all: bool, period_start: datetime
) -> ExportRun | None:
    """The newest run of the period of which all files were delivered."""
    values = {"organization_id": organization_id, "covers_all": covers_all, "period_start": period_start}
    return await read_one(connection, _LAST_COMPLETE, ExportRun, **values)


async def files(connection: Connection, run_ids: list[UUID]) -> list[DeliveredFile]:
    """The files of these runs that were delivered, by run and name."""
    return await read(connection, _FILES, DeliveredFile, run_ids=run_ids)


async def insert_file(connection: Connection, file: DeliveredFile) -> None:
    """Store what was delivered. The first delivery of a file stays."""
    values = {name: getattr(file, name) for name in DeliveredFile.__slots__}
    values |= {"name": file.name.value, "sums": document(file.sums), "price_books": list(file.price_books)}
    await write(connection, _INSERT_FILE, **values)


async def charges(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    month: datetime,
    cut_at: datetime,
    invoiced_until: datetime,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[ChargeFacts]:
    """Charges that are booked in the month and were rated until the cut, in order of start and id.

    They name their invoice if it was issued until `invoiced_until`. `after` is start and id of the last one that was
    read.
    """
    after_at, after_id = after or (_BEFORE_ALL, UUID(int=0))
    return await read(
        connection,
        _CHARGES,
        ChargeFacts,
        organization_id=organization_id,
        month=month,
        cut_at=cut_at,
        invoiced_until=invoiced_until,
        after_at=after_at,
        after_id=after_id,
        limit=limit,
    )


async def sums(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    month: datetime,
    cut_at: datetime,
) -> ChargeSums:
    """The same charges, added up."""
    values = {"organization_id": organization_id, "month": month, "cut_at": cut_at}
    (found,) = await read(connection, _SUMS, ChargeSums, **values)
    return found
