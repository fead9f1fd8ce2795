"""Invoices: finance computes and issues them for a month, and customers read their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from control_plane.db import (
    billing_details,
    credit_notes,
    credit_terms,
    document_numbers,
    invoices,
    ledger,
    organizations,
    periods,
)
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.domain import ledger as ledger_domain
from control_plane.domain.credit_note import CreditNote, credited_by
from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import (
    UNCORRECTED,
    Credited,
    DocumentSeries,
    Invoice,
    InvoiceLine,
    Seller,
    document_number,
    draft,
    draft_refusal,
    issue_refusal,
)
from control_plane.domain.money import NANO_PER_CENT, NOTHING, Nano
from control_plane.domain.period import MAIN_ISSUER, Period
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

BATCH = 50
"""How many organizations one request looks at. Each batch is one transaction, which holds the numbers of invoices."""
SKIPPED = frozenset({RefusalCode.NOTHING_TO_INVOICE, RefusalCode.INVOICE_EXISTS})
"""Why an organization is passed over without a word when invoices of all are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceRun:
    """Which invoices somebody asks for."""

    month: datetime
    draft: bool
    """Whether they are only computed."""
    organization_id: OrganizationId | None
    """One organization, or all."""
    after: tuple[datetime, UUID] | None
    """Of all: creation time and id of the last organization of the batch before."""
    seller: Seller
    number_prefix: str
    platform: OrganizationId
    """The organization of whoever asks, whose transaction it is."""
    by: str
    """The id of the subject."""


@dataclass(frozen=True, slots=True)
class CreditedInvoice:
    """An invoice, with what its credit notes come to."""

    invoice: Invoice
    credited: Credited


@dataclass(frozen=True, slots=True)
class FullInvoice:
    invoice: Invoice
    lines: Sequence[InvoiceLine]
    credit_notes: Sequence[CreditNote] = ()
    """Those that correct it, the oldest first."""
    credited_lines: Mapping[int, int] = field(default_factory=dict)
    """By how many cents they correct each line, by its number."""

    @property
    def credited(self) -> Credited:
        return credited_by(self.credit_notes)


@dataclass(frozen=True, slots=True)
class NotInvoiced:
    """An organization that has no invoice, although it has charges, and why."""

    organization_id: OrganizationId
    refused: Refused


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of a request for invoices."""

    invoices: Sequence[FullInvoice]
    refused: Sequence[NotInvoiced] = ()
    following: tuple[datetime, UUID] | None = None
    """Where the next batch starts; None after the last one."""


@dataclass(slots=True)
class _Making:
    """A run on its way. It holds its period, and the series of numbers, until its transaction ends."""

    connection: Connection
    world: World
    asked: InvoiceRun
    period: Period
    now: datetime
    last: int = 0
    """The last number that was given out in this year; 0 for drafts."""

    def next_number(self) -> str:
        self.last += 1
        return document_number(self.asked.number_prefix, self.now.year, self.last)


async def run(connection: Connection, world: World, asked: InvoiceRun) -> Batch | Refused:
    """Compute or issue the invoices of a month: of one organization, or of a batch of all.

    Refused for one organization that has nothing to invoice, an invoice already, or no billing details. Of all, those
    without billing details are named in the answer, and the others passed over.
    """
    now = world.now()
    period = await periods.hold(connection, MAIN_ISSUER, asked.month)
    refused = draft_refusal(period, now) if asked.draft else issue_refusal(period)
    if refused is not None:
        return refused
    making = _Making(connection, world, asked, period, now)
    series = (MAIN_ISSUER, DocumentSeries.INVOICE, now.year)
    if not asked.draft:
        making.last = await document_numbers.take(connection, *series)
    if asked.organization_id is None:
        batch = await _batch(making)
    else:
        found = await _one(making, asked.organization_id)
        if isinstance(found, Refused):
            return found
        batch = Batch([found])
    if not asked.draft:
        await document_numbers.save(connection, *series, making.last)
    return batch


async def draft_of(
    world: World,
    organization_id: OrganizationId,
    month: datetime,
    *,
    seller: Seller,
    platform: OrganizationId,
) -> FullInvoice | Refused:
    """What would be invoiced to an organization for a month now."""
    async with world.db.transaction(platform) as connection:
        period = await periods.hold(connection, MAIN_ISSUER, month)
        refused = draft_refusal(period, world.now())
        if refused is not None:
            return refused
        async with acting_for(connection, organization_id, back_to=platform):
            return await _draft(connection, organization_id, period, seller=seller, lock=False)


async def _batch(making: _Making) -> Batch:
    connection, asked = making.connection, making.asked
    ids = await organizations.ids(connection, after=asked.after, limit=BATCH + 1)
    made: list[FullInvoice] = []
    refused: list[NotInvoiced] = []
    # Standings are locked in order of ids, as everywhere.
    for organization_id in sorted(ids[:BATCH]):
        found = await _one(making, organization_id)
        if isinstance(found, FullInvoice):
            made.append(found)
        elif found.code not in SKIPPED:
            refused.append(NotInvoiced(organization_id, found))
    if len(ids) <= BATCH:
        return Batch(made, refused)
    async with acting_for(connection, ids[BATCH - 1], back_to=asked.platform):
        last = await organizations.get(connection, ids[BATCH - 1])
    if last is None:
        raise LookupError(f"organization {ids[BATCH - 1]} vanished")
    return Batch(made, refused, (last.created_at, last.id))


async def _one(making: _Making, organization_id: OrganizationId) -> FullInvoice | Refused:
    connection, asked = making.connection, making.asked
    async with acting_for(connection, organization_id, back_to=asked.platform):
        computed = await _draft(
            connection, organization_id, making.period, seller=asked.seller, lock=not asked.draft
        )
        if asked.draft or isinstance(computed, Refused):
            return computed
        invoice = computed.invoice.issued(
            making.world.new_id(), making.next_number(), at=making.now, by=asked.by
        )
        await _post(making, invoice)
    await invoices.insert(connection, invoice, computed.lines)
    return FullInvoice(invoice, computed.lines)


async def _draft(
    connection: Connection, organization_id: OrganizationId, period: Period, *, seller: Seller, lock: bool
) -> FullInvoice | Refused:
    """What is to be invoiced. `lock` holds the standing until the transaction ends, for what is going to be posted."""
    standing = await organizations.standing(connection, organization_id, lock=lock)
    if standing is None:
        return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
    number = await invoices.number_of(connection, organization_id, period.month)
    if number is not None:
        return Refused(RefusalCode.INVOICE_EXISTS, f"{number} is its invoice of {period.name}.")
    usage = await invoices.usage(connection, organization_id, period.month)
    unused = await invoices.unused_credits(connection, organization_id, period.month)
    if not usage and unused >= NOTHING:
        return Refused(RefusalCode.NOTHING_TO_INVOICE, f"No charge of it is booked in {period.name}.")
    buyer = await billing_details.get(connection, organization_id)
    if buyer is None:
        return Refused(RefusalCode.BILLING_DETAILS_MISSING, "It has no billing details; set who is invoiced.")
    credits_left = await invoices.credits_left(connection, organization_id, period.month)
    balances = await invoices.balances(connection, organization_id, period.month)
    terms = await credit_terms.get(connection, organization_id)
    return FullInvoice(
        *draft(
            organization_id,
            period,
            seller=seller,
            buyer=buyer.details,
            usage=usage,
            unused_credits=unused,
            given=credits_left,
            balance_at_end=balances.at_end_nano,
            balance_now=balances.now_nano,
            unspent_credits=balances.unspent_credits_nano,
            payment_days=0 if terms is None else terms.payment_days,
        )
    )


async def _post(making: _Making, invoice: Invoice) -> None:
    if invoice.id is None:
        raise ValueError("a draft is not posted")
    transaction = ledger_domain.invoice(
        invoice.organization_id,
        invoice_id=invoice.id,
        tax=Nano(invoice.tax_cents * NANO_PER_CENT),
        adjustment=invoice.adjustment_nano,
        on_account=Nano(invoice.on_account_cents * NANO_PER_CENT),
        at=making.now,
    )
    if transaction is not None:
        await ledger.post(making.connection, [(making.world.new_id(), transaction)], now=making.now)


async def page(
    world: World,
    reader: OrganizationId,
    *,
    of_all: bool,
    period: datetime | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[CreditedInvoice]:
    """Invoices of the reader's organization, or of all customers for the platform's, newest first."""
    async with world.db.reading(reader) as connection:
        page = await invoices.page(
            connection, None if of_all else reader, period=period, before=before, limit=limit
        )
        found = {invoice.id: invoice for invoice in page if invoice.id is not None}
        credited = await credit_notes.credited(connection, list(found))
    return [
        CreditedInvoice(invoice, credited.get(invoice_id, UNCORRECTED))
        for invoice_id, invoice in found.items()
    ]


async def get(
    world: World, reader: OrganizationId, invoice_id: UUID, *, of_all: bool
) -> FullInvoice | Refused:
    """An invoice of the reader's organization, or of any customer for the platform's."""
    async with world.db.reading(reader) as connection:
        invoice = await invoices.get(connection, invoice_id, None if of_all else reader)
        if invoice is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no invoice with this id.")
        return FullInvoice(
            invoice,
            await invoices.lines(connection, invoice_id),
            await credit_notes.of_invoice(connection, invoice_id),
            await credit_notes.credited_lines(connection, invoice_id),
        )
