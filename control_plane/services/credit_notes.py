"""Credit notes: finance corrects an issued invoice, in whole or in part, and customers read their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import credit_notes, document_numbers, invoices, ledger, organizations
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.domain import ledger as ledger_domain
from control_plane.domain.credit_note import (
    CreditNote,
    CreditNoteLine,
    LineToCredit,
    correction,
    credited_by,
    less_owed,
)
from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import DocumentSeries, Invoice, document_number
from control_plane.domain.ledger import Approval
from control_plane.domain.money import NANO_PER_CENT, Nano
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditNoteOrder:
    """Which credit note somebody decides on."""

    invoice_id: UUID
    lines: Sequence[LineToCredit] | None
    """None for all that is left of the invoice."""
    approval: Approval
    number_prefix: str
    platform: OrganizationId
    """The organization of whoever decides, whose transaction it is."""


@dataclass(frozen=True, slots=True)
class FullCreditNote:
    note: CreditNote
    lines: Sequence[CreditNoteLine]
    invoice: Invoice
    """The one that it corrects."""


async def issue(connection: Connection, world: World, order: CreditNoteOrder) -> FullCreditNote | Refused:
    """Issue a credit note, and give back what it comes to in the period of this moment."""
    invoice = await invoices.get(connection, order.invoice_id, None)
    if invoice is None:
        return Refused(RefusalCode.NOT_FOUND, "There is no invoice with this id.")
    now = world.now()
    series = (invoice.issuer, DocumentSeries.CREDIT_NOTE, now.year)
    last = await document_numbers.take(connection, *series)
    async with acting_for(connection, invoice.organization_id, back_to=order.platform):
        # Whoever corrects the same invoice waits here, so that what is left of a line is given back once.
        await organizations.standing(connection, invoice.organization_id, lock=True)
        before = credited_by(await credit_notes.of_invoice(connection, order.invoice_id))
        found = correction(
            invoice,
            await invoices.lines(connection, order.invoice_id),
            before=before,
            credited_lines=await credit_notes.credited_lines(connection, order.invoice_id),
            asked=order.lines,
        )
        if isinstance(found, Refused):
            return found
        owed = await ledger.owed(connection, invoice.organization_id)
        to_receivable = less_owed(invoice, found, before=before, owed=owed)
        note = CreditNote(
            id=world.new_id(),
            organization_id=invoice.organization_id,
            invoice_id=order.invoice_id,
            issuer=invoice.issuer,
            number=document_number(order.number_prefix, now.year, last + 1),
            credited_cents=found.credited_cents,
            net_cents=found.net_cents,
            tax_cents=found.tax_cents,
            credits_nano=found.credits_nano,
            to_wallet_nano=Nano(found.given_back_nano - to_receivable),
            reason=order.approval.reason,
            issued_at=now,
            issued_by=order.approval.by,
        )
        transaction = ledger_domain.credit_note(
            note.organization_id,
            credit_note_id=note.id,
            credited=Nano(note.credited_cents * NANO_PER_CENT),
            to_wallet=note.to_wallet_nano,
            to_receivable=to_receivable,
            tax=Nano(note.tax_cents * NANO_PER_CENT),
            at=now,
            approval=order.approval,
        )
        await ledger.post(connection, [(world.new_id(), transaction)], now=now)
    await credit_notes.insert(connection, note, found.lines)
    await document_numbers.save(connection, *series, last + 1)
    return FullCreditNote(note, found.lines, invoice)


async def page(
    world: World,
    reader: OrganizationId,
    *,
    of_all: bool,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> tuple[list[CreditNote], Mapping[UUID, Invoice]]:
    """Credit notes of the reader's organization, or of all customers, newest first, and the invoices by their ids."""
    async with world.db.reading(reader) as connection:
        found = await credit_notes.page(connection, None if of_all else reader, before=before, limit=limit)
        return found, await invoices.by_id(connection, {note.invoice_id for note in found})


async def get(
    world: World, reader: OrganizationId, credit_note_id: UUID, *, of_all: bool
) -> FullCreditNote | Refused:
    """A credit note of the reader's organization, or of any customer for the platform's."""
    async with world.db.reading(reader) as connection:
        note = await credit_notes.get(connection, credit_note_id, None if of_all else reader)
        invoice = None if note is None else await invoices.get(connection, note.invoice_id, None)
        if note is None or invoice is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no credit note with this id.")
        return FullCreditNote(note, await credit_notes.lines(connection, credit_note_id), invoice)
