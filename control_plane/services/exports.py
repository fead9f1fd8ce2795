"""Exports of a billing period: what a run covers, its files as they are made, and its manifest."""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

from control_plane.db import exported_documents, exports, organizations, periods
from control_plane.db.connection import Connection
from control_plane.db.exports import ChargeReader, ChargeSums, DeliveredFile, ExportRun
from control_plane.domain.export_run import FileName, cut_at, invoiced_until, refusal
from control_plane.domain.focus import OwnFacts, Pattern, Row, decimal_text, parse_decimal
from control_plane.domain.focus_documents import DocumentDiffersError, DocumentFacts, document_rows, key
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.money import Nano
from control_plane.domain.period import month_after, month_text
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.exports.csv_file import CsvEncoder
from control_plane.exports.encoder import Encoder
from control_plane.exports.manifest import Described, ExportedFile, digest, manifest
from control_plane.exports.totals import Totals
from control_plane.world import World

__all__ = [
    "DeliveredFile",
    "ExportRun",
    "Exported",
]  # Controllers name these, and do not import the layer below.

ROWS_PER_READ = 5_000
"""Also the rows of a Parquet file's row group."""
_ORGANIZATIONS_MAX = 1_000_000
_ALL = "all"
_Charge = tuple[Pattern, OwnFacts]
"""What makes the row of a charge."""


class ExportDiffersError(Exception):
    """What was read is not what the run has to contain. The answer is cut off, so that nobody takes it for whole."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A run with the files that were delivered so far."""

    run: ExportRun
    files: Sequence[DeliveredFile]

    @property
    def manifest(self) -> bytes | None:
        """None until every file was delivered."""
        return _manifest(self.run, self.files) if len(self.files) == len(FileName) else None


async def create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    month: datetime,
    *,
    covers_all: bool,
    final: bool,
    seller: str,
    by: str,
) -> Exported | Refused:
    """Begin a run. Its files are made when they are fetched. `seller` is who invoices, and `by` who asks.

    It is final if the month is closed, and refused otherwise when it has to be `final`.
    """
    closed = await periods.is_closed(connection, organization_id, month)
    now = world.now()  # After that, so that nothing of a closed month was rated later.
    refused = refusal(month, now, closed=closed, final=final)
    if refused is not None:
        return refused
    previous = await exports.last_complete_run(
        connection, organization_id, covers_all=covers_all, period_start=month
    )
    before = None
    if previous is not None:
        before = _manifest(previous, await exports.files(connection, [previous.id]))
    run = ExportRun(
        id=world.new_id(),
        organization_id=organization_id,
        covers_all=covers_all,
        period_start=month,
        final=closed,
        seller=seller,
        cut_at=cut_at(now, closed=closed),
        created_at=now,
        created_by=by,
        previous_id=None if previous is None else previous.id,
        previous_sha256=None if before is None else digest(before),
    )
    await exports.insert_run(connection, run)
    return Exported(run, ())


async def page(
    world: World,
    organization_id: OrganizationId,
    *,
    covers_all: bool,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Exported]:
    """Runs, newest first."""
    async with world.db.reading(organization_id) as connection:
        runs = await exports.runs(
            connection, organization_id, covers_all=covers_all, before=before, limit=limit
        )
        files = await exports.files(connection, [run.id for run in runs])
    by_run = {run_id: list(found) for run_id, found in groupby(files, lambda file: file.run_id)}
    return [Exported(run, by_run.get(run.id, [])) for run in runs]


async def get(
    world: World, organization_id: OrganizationId, run_id: UUID, *, covers_all: bool
) -> Exported | Refused:
    async with world.db.reading(organization_id) as connection:
        run = await exports.get_run(connection, organization_id, run_id)
        files = await exports.files(connection, [run_id])
    if run is None or run.covers_all != covers_all:
        return Refused(RefusalCode.NOT_FOUND, "There is no export with this id; GET /v1/exports lists them.")
    return Exported(run, files)


def manifest_of(exported: Exported) -> bytes | Refused:
    """The manifest of a run, once every file was delivered."""
    content = exported.manifest
    if content is None:
        missing = ", ".join(sorted({*FileName} - {file.name for file in exported.files}))
        return Refused(RefusalCode.EXPORT_INCOMPLETE, f"These files were not fetched yet: {missing}.")
    return content


async def file(world: World, exported: Exported, name: FileName) -> AsyncIterator[bytes]:
    """The bytes of a file, as they are made. After the last one, it is stored what they were.

    Raises ExportDiffersError when the rows do not add up to what the database says, or when the file was delivered
    before with other bytes.
    """
    encoder = await asyncio.to_thread(_encoder, name)
    sha256, size, totals, books = hashlib.sha256(), 0, Totals(), set[int]()
    chunk = await asyncio.to_thread(encoder.begin)
    async for made in _batches(world, exported.run, encoder, totals, books):
        sha256.update(chunk)
        size += len(chunk)
        yield chunk
        chunk = made
    # The last bytes wait until the file is known to be right.
    chunk += await asyncio.to_thread(encoder.end)
    sha256.update(chunk)
    size += len(chunk)
    delivered = DeliveredFile(
        run_id=exported.run.id,
        organization_id=exported.run.organization_id,
        name=name,
        size=size,
        sha256=sha256.digest(),
        rows=totals.rows,
        sums={column: decimal_text(total) for column, total in totals.sums.items()},
        price_books=tuple(sorted(books)),
        delivered_at=world.now(),
    )
    await _store(world, delivered)
    yield chunk


async def _store(world: World, file: DeliveredFile) -> None:
    """Store what a file is, or compare it with what it was. Raises ExportDiffersError."""
    async with world.db.transaction(file.organization_id) as connection:
        await exports.insert_file(connection, file)
        stored = await exports.files(connection, [file.run_id])
    for other in stored:
        if other.name is file.name and other.sha256 != file.sha256:
            raise ExportDiffersError(f"{file.name} was delivered with other bytes before")
        if (other.rows, other.sums) != (file.rows, file.sums):
            raise ExportDiffersError(f"{file.name} and {other.name} do not hold the same rows")


async def _batches(
    world: World, run: ExportRun, encoder: Encoder, totals: Totals, books: set[int]
) -> AsyncIterator[bytes]:
    """The rows of a run as bytes, organization by organization: each is read as its own tenant."""
    reader = ChargeReader(seller=run.seller)
    for organization_id in await _covered(world, run):
        documents = await _documents(world, run, organization_id)
        others = _document_rows(documents, run.seller)
        exported = ChargeSums(0, Nano(0), 0)
        async with aclosing(_pages(world, run, organization_id, reader)) as pages:
            async for charges in pages:
                yield await asyncio.to_thread(_encode, charges, others, encoder, totals)
                books |= {pattern.facts.price_book for pattern, _ in charges}
                exported = _added(exported, charges)
        if others:
            yield await asyncio.to_thread(_encode, (), others, encoder, totals)
        if exported != await _sums(world, run, organization_id):
            raise ExportDiffersError(f"the charges of {organization_id} do not add up to what was read")
        for document in documents:
            if document.corrects is None and document.usage_nano != exported.amount_nano:
                raise ExportDiffersError(f"the charges do not add up to the usage of {document.number}")


async def _pages(
    world: World, run: ExportRun, organization_id: OrganizationId, reader: ChargeReader
) -> AsyncGenerator[Sequence[_Charge], None]:
    """The charges of an organization, page by page. While one is encoded, the database finds the next one."""
    reading: asyncio.Task[Sequence[_Charge]] | None = asyncio.create_task(
        _read(world, run, organization_id, reader, None)
    )
    try:
        while reading is not None:
            charges, reading = await reading, None
            if len(charges) == ROWS_PER_READ:
                _, last = charges[-1]
                after = (last.started_at, last.id)
                reading = asyncio.create_task(_read(world, run, organization_id, reader, after))
            if charges:
                yield charges
    finally:
        if reading is not None:
            reading.cancel()


async def _covered(world: World, run: ExportRun) -> Sequence[OrganizationId]:
    """The organizations whose charges are in the run, in the order of its rows."""
    if not run.covers_all:
        return [run.organization_id]
    async with world.db.reading() as connection:
        return sorted(await organizations.ids(connection, after=None, limit=_ORGANIZATIONS_MAX))


async def _read(
    world: World,
    run: ExportRun,
    organization_id: OrganizationId,
    reader: ChargeReader,
    after: tuple[datetime, UUID] | None,
) -> Sequence[_Charge]:
    async with world.db.reading(organization_id) as connection:
        return await reader.page(
            connection,
            organization_id,
            month=run.period_start,
            cut_at=run.cut_at,
            invoiced_until=invoiced_until(run.created_at),
            after=after,
            limit=ROWS_PER_READ,
        )


async def _documents(world: World, run: ExportRun, organization_id: OrganizationId) -> list[DocumentFacts]:
    async with world.db.reading(organization_id) as connection:
        return await exported_documents.documents(
            connection,
            organization_id,
            month=run.period_start,
            issued_until=invoiced_until(run.created_at),
        )


def _document_rows(documents: Sequence[DocumentFacts], seller: str) -> deque[Row]:
    """The rows of an organization's invoice and credit notes, in their order. Raises ExportDiffersError."""
    try:
        rows = [row for document in documents for row in document_rows(document, seller=seller)]
    except DocumentDiffersError as error:
        raise ExportDiffersError(str(error)) from error
    return deque(sorted(rows, key=key))


async def _sums(world: World, run: ExportRun, organization_id: OrganizationId) -> ChargeSums:
    async with world.db.reading(organization_id) as connection:
        return await exports.sums(connection, organization_id, month=run.period_start, cut_at=run.cut_at)


def _added(before: ChargeSums, charges: Sequence[_Charge]) -> ChargeSums:
    return ChargeSums(
        before.charges + len(charges),
        Nano(before.amount_nano + sum(pattern.facts.amount_nano for pattern, _ in charges)),
        before.unit_seconds + sum(pattern.facts.unit_seconds for pattern, _ in charges),
    )


def _encode(charges: Sequence[_Charge], others: deque[Row], encoder: Encoder, totals: Totals) -> bytes:
    """The rows of charges, with those of `others` that belong among them; without charges, all that are left."""
    rows = [pattern.row(own) for pattern, own in charges]
    between: list[Row] = []
    while others and (not rows or key(others[0]) < key(rows[-1])):
        between.append(others.popleft())
    if between:
        rows = sorted([*rows, *between], key=key)
    totals.add(rows)
    return encoder.encode(rows)


def _encoder(name: FileName) -> Encoder:
    if name is FileName.CSV:
        return CsvEncoder()
    # pyarrow takes 60 MB of memory and a third of a second, which only a process that writes Parquet spends.
    from control_plane.exports.parquet_file import ParquetEncoder  # noqa: PLC0415 - loaded when it is needed: above

    return ParquetEncoder()


def _manifest(run: ExportRun, files: Sequence[DeliveredFile]) -> bytes:
    previous = None
    if run.previous_id is not None and run.previous_sha256 is not None:
        previous = (on_wire(Prefix.EXPORT_RUN, run.previous_id), run.previous_sha256)
    described = Described(
        run=on_wire(Prefix.EXPORT_RUN, run.id),
        covers=_ALL if run.covers_all else on_wire(Prefix.ORGANIZATION, run.organization_id),
        period=month_text(run.period_start),
        since=run.period_start,
        until=month_after(run.period_start),
        final=run.final,
        cut_at=run.cut_at,
        created_at=run.created_at,
        price_books=files[0].price_books,
        previous=previous,
    )
    return manifest(described, [_exported(file) for file in files])


def _exported(file: DeliveredFile) -> ExportedFile:
    sums = {column: parse_decimal(total) for column, total in file.sums.items()}
    return ExportedFile(file.name, file.size, file.sha256, Totals(file.rows, sums))
