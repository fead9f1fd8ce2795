"""Queries on exports: their runs, the files that were delivered, and charges with all that a row says of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import Alike, convert, document, read, read_one, write
from control_plane.domain.export_run import FileName
from control_plane.domain.focus import AlikeFacts, OwnFacts, Pattern
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
# A page is cut before anything is joined to it: otherwise all charges that are left are joined for every page. What all
# of them have in common is looked up once, and the rest row by row by its key: `OFFSET 0` keeps PostgreSQL from a join
# that reads whole tables. The first columns are those of `OwnFacts`, and then come the two that `Alike` wants; `alike`
# has the fields of `AlikeFacts`, in their order.
_CHARGES = text(f"""
SELECT id, number, started_at, ended_at, unit_seconds_before, key,
       CASE WHEN row_number() OVER (PARTITION BY key) = 1 THEN alike END AS alike
FROM (
  SELECT id, number, started_at, ended_at, unit_seconds_before, record_send(alike) AS key, alike
  FROM (
    SELECT c.id, c.number, c.started_at, c.ended_at, i.unit_seconds_before, ROW(
      c.organization_id, (SELECT name FROM organizations WHERE id = :organization_id),
      c.project_id, n.project, c.lease_id, n.lease, c.machine_id, c.provider, c.region, c.sku,
      s.gpu_model, s.gpu_count, s.capacity, c.purchase, c.sla, c.price_book, c.period, c.unit_seconds, c.stopped,
      c.unused, c.nano_per_unit_hour, c.list_nano_per_unit_hour, c.amount_nano, CAST(n.labels AS text), n.node_pool,
      (SELECT number FROM invoices v WHERE v.organization_id = :organization_id AND v.period = :month
       AND v.issued_at <= :invoiced_until)
    ) AS alike
    FROM (
      SELECT c.* FROM charges c
      WHERE {_WITHIN} AND (c.started_at, c.id) > (:after_at, CAST(:after_id AS uuid))
      ORDER BY c.started_at, c.id LIMIT :limit
    ) c
    JOIN skus s ON s.name = c.sku
    CROSS JOIN LATERAL (
      SELECT unit_seconds_before FROM intervals WHERE lease_id = c.lease_id AND number = c.number OFFSET 0
    ) i
    LEFT JOIN LATERAL (
      SELECT project, lease, labels, node_pool FROM charge_names
      WHERE organization_id = :organization_id AND lease_id = c.lease_id AND number = c.number OFFSET 0
    ) n ON true
    OFFSET 0
  ) charge
  OFFSET 0
) charge
ORDER BY started_at, id
""")
_ALIKE = tuple(field.name for field in fields(AlikeFacts))
_PATTERNS_MAX = 10_000
"""Of a reader: 40 MB at the most."""
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


class ChargeReader:
    """Reads the charges of an export, page by page, and keeps the patterns of their rows from page to page.

    Most charges of a month are hours of leases that go on, so few columns of a row are new. The others are turned into
    values once for each pattern, which takes a fifth of the time.
    """

    def __init__(self, *, seller: str) -> None:
        self._seller = seller
        self._alike = Alike(OwnFacts, self._pattern, kept=_PATTERNS_MAX)

    async def page(
        self,
        connection: Connection,
        organization_id: OrganizationId,
        *,
        month: datetime,
        cut_at: datetime,
        invoiced_until: datetime,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[tuple[Pattern, OwnFacts]]:
        """Charges that are booked in the month and were rated until the cut, in order of start and id.

        They name their invoice if it was issued until `invoiced_until`. `after` is start and id of the last one that
        was read.
        """
        after_at, after_id = after or (_BEFORE_ALL, UUID(int=0))
        return await self._alike.read(
            connection,
            _CHARGES,
            organization_id=organization_id,
            month=month,
            cut_at=cut_at,
            invoiced_until=invoiced_until,
            after_at=after_at,
            after_id=after_id,
            limit=limit,
        )

    def _pattern(self, values: tuple[object, ...]) -> Pattern:
        columns = dict(zip(_ALIKE, values, strict=True))
        columns["labels"] = json.loads(str(columns["labels"] or "{}"))
        return Pattern(convert(columns, AlikeFacts), seller=self._seller)


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
