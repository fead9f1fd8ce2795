"""Files of suppliers' invoices: they come in parts of whole lines, and become an invoice all at once."""

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import supplier_invoices, supplier_uploads
from control_plane.db.connection import Connection
from control_plane.db.supplier_invoices import SupplierInvoice
from control_plane.db.supplier_uploads import SupplierUpload
from control_plane.domain.money import Nano
from control_plane.domain.period import month_text
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.supplier_invoice import (
    SupplierEvent,
    UploadedPart,
    invalid,
    parse,
    size_refusal,
    upload_refusal,
)
from control_plane.world import World

_UNKNOWN = Refused(RefusalCode.NOT_FOUND, "There is no such upload: it was imported, or is older than a day.")


@dataclass(frozen=True, slots=True)
class Uploading:
    """A file that is on its way, with the parts that are there."""

    upload: SupplierUpload
    parts: Sequence[UploadedPart]

    @property
    def lines(self) -> int:
        return sum(part.lines for part in self.parts)

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(part.size for part in self.parts)


async def begin(
    connection: Connection, world: World, provider: str, month: datetime, *, by: str
) -> Uploading | Refused:
    """Begin to upload a supplier's invoice of a month.

    Refused for a month that has not begun, and for a provider at which there is no account.
    """
    now = world.now()
    if now < month:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{month_text(month)} has not begun.")
    if not await supplier_invoices.is_known(connection, provider):
        return Refused(RefusalCode.NOT_FOUND, f"There is no account at a provider {provider}.")
    upload = SupplierUpload(world.new_id(), provider, month, now, by)
    await supplier_uploads.insert(connection, upload)
    return Uploading(upload, ())


async def put(
    connection: Connection, upload_id: UUID, *, number: int, first_line: int, content: str
) -> Uploading | Refused:
    """Store a part of whole lines, the first of which has the number `first_line` in the file.

    It takes the place of an earlier one with its number. Refused for a line that is wrong, and a file that is too
    large.
    """
    upload = await supplier_uploads.lock(connection, upload_id)
    if upload is None:
        return _UNKNOWN
    rows = _rows(content, first_line)
    if isinstance(rows, Refused):
        return rows
    lines = parse(rows, upload.month, first=number == 1)
    if isinstance(lines, Refused):
        return lines
    amount = Nano(sum(abs(line.amount_nano) for line in lines))
    part = UploadedPart(number, first_line, len(rows), len(content.encode()), amount)
    stored = await supplier_uploads.parts(connection, upload_id)
    parts = sorted(
        [part, *(other for other in stored if other.number != number)], key=lambda each: each.number
    )
    refused = size_refusal(parts)
    if refused is not None:
        return refused
    await supplier_uploads.put(connection, upload_id, part, content=content, lines=lines)
    return Uploading(upload, parts)


def _rows(content: str, first_line: int) -> list[tuple[int, list[str]]] | Refused:
    """The fields of each line of a CSV file (RFC 4180), with its number."""
    reader = csv.reader(content.splitlines(keepends=True), strict=True)
    try:
        return [(first_line - 1 + reader.line_num, fields) for fields in reader]
    except csv.Error as error:
        return invalid(first_line - 1 + reader.line_num, f"is no CSV: {error}")


async def finish(
    connection: Connection, world: World, upload_id: UUID, parts: int, *, by: str
) -> SupplierInvoice | Refused:
    """Make a file of so many parts the supplier's whole invoice of its month.

    It takes the place of an earlier import, which is kept. The same file again changes nothing. Refused when a part is
    missing.
    """
    upload = await supplier_uploads.lock(connection, upload_id)
    if upload is None:
        return _UNKNOWN
    refused = upload_refusal(await supplier_uploads.parts(connection, upload_id), parts)
    if refused is not None:
        return refused
    await supplier_invoices.lock(connection, upload.provider)
    digest = hashlib.sha256()
    async for content in supplier_uploads.contents(connection, upload_id):
        digest.update(content.encode())
    last = await supplier_invoices.last(connection, upload.provider, upload.month)
    if last is not None and last.sha256 == digest.hexdigest() and last.state is not SupplierEvent.VOIDED:
        await supplier_uploads.delete(connection, upload_id)
        return last
    sums = await supplier_uploads.sums(connection, upload_id)
    invoice = SupplierInvoice(
        id=world.new_id(),
        provider=upload.provider,
        month=upload.month,
        sha256=digest.hexdigest(),
        line_count=sums.lines,
        amount_nano=sums.amount_nano,
        imported_at=world.now(),
        imported_by=by,
    )
    await supplier_invoices.insert(connection, invoice)
    await supplier_uploads.keep(connection, upload_id, invoice_id=invoice.id)
    await supplier_uploads.delete(connection, upload_id)
    return invoice
