"""Examines whether the books of a month follow from what happened, after somebody asked for it, customer by customer.

Every activation examines some customers and stores what it found in one transaction, so a crash repeats these
customers and no others. The sources are only read. A difference is a finding and no error of this loop: whoever asked
sees it, and corrects it by new rows in an open period (docs/finance.md).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

from control_plane.db import credit_notes, reconciliation_batches, reconciliations, supplier_invoices
from control_plane.db.reconciliation_batches import Batch, Difference
from control_plane.db.reconciliations import Cut, ExportedSum, Reconciliation
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.period import month_after
from control_plane.domain.reconciliation import (
    EXAMPLES_MAX,
    OF_CUSTOMERS,
    Amounts,
    LinkName,
    amounts_of,
    differences,
    invoice_amounts,
)
from reconciler.loop import Loop, Report
from reconciler.world import World

NAME = "reconcile_periods"
CUSTOMERS_PER_ACTIVATION_MAX = 100
LEASES_PER_READ = 500
"""A month of an always running lease has 744 intervals, so that a statement reads less than 400,000 of them."""
_DAY = timedelta(days=1)
_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Examined:
    """What was found about a customer so far."""

    amounts: Amounts = field(default_factory=Amounts)
    examples: dict[LinkName, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, amounts: Amounts, example: str | None = None) -> None:
        """Add a part of the customer's amounts. `example` names what they are of, where one thing is meant."""
        self.amounts = self.amounts.plus(amounts)
        if example is not None:
            for found in differences(amounts):
                self.give(found.link, example)

    def give(self, link: LinkName, *examples: str) -> None:
        """Add examples, as long as there is room."""
        given = self.examples[link]
        given.extend(examples[: EXAMPLES_MAX - len(given)])


async def activate(world: World) -> Report:
    async with world.db.reading() as connection:
        asked = await reconciliations.unfinished(connection)
        if asked is None:
            return Report()
        progress = (await reconciliation_batches.progress(connection, [asked.id])).get(asked.id)
        reached = None if progress is None else progress.reached
        customers = await reconciliations.customers(
            connection, after=reached, limit=CUSTOMERS_PER_ACTIVATION_MAX
        )
        last = customers[-1] if customers else reached
        remaining = await reconciliations.remaining(connection, after=last)
    examined = await _examine(world, asked, customers)
    amounts = Amounts()
    for customer in examined.values():
        amounts = amounts.plus(customer.amounts)
    if remaining == 0:
        amounts = amounts.plus(await _suppliers(world, asked.period))
    if remaining == 0 and asked.export_id is not None:
        amounts = amounts.plus(await _exported(world, asked.export_id))
    number = 1 if progress is None else progress.batches + 1
    batch = Batch(asked.id, number, last, len(customers), remaining, amounts, world.now())
    found = [
        Difference(
            asked.id,
            number,
            customer_id,
            sides.link,
            sides.before_nano,
            sides.after_nano,
            tuple(customer.examples[sides.link]),
        )
        for customer_id, customer in examined.items()
        for sides in differences(customer.amounts, OF_CUSTOMERS)
    ]
    differing = {difference.customer_id for difference in found}
    stored = {
        customer_id: customer.amounts
        for customer_id, customer in examined.items()
        if asked.all_customers or customer_id in differing
    }
    async with world.db.transaction() as connection:
        await reconciliation_batches.record(connection, batch, stored, found)
    return Report(looked_at=max(1, len(customers)), acted_on=max(1, len(customers)), more=remaining > 0)


async def _examine(
    world: World, asked: Reconciliation, customers: Sequence[OrganizationId]
) -> dict[OrganizationId, Examined]:
    """What each source says about these customers."""
    examined = {customer_id: Examined() for customer_id in customers}
    await _examine_leases(world, asked, examined)
    await _examine_books(world, asked, examined)
    await _examine_invoices(world, asked, examined)
    return examined


async def _examine_leases(
    world: World, asked: Reconciliation, examined: dict[OrganizationId, Examined]
) -> None:
    """Compare the journal, the meter and the charges, lease by lease."""
    since, until = asked.period, month_after(asked.period)
    async with world.db.reading() as connection:
        lease_ids = await reconciliations.leases(connection, list(examined), since=since, until=until)
    for start in range(0, len(lease_ids), LEASES_PER_READ):
        some = lease_ids[start : start + LEASES_PER_READ]
        async with world.db.reading() as connection:
            leases = await reconciliations.facts(connection, some, since=since, until=until)
        for lease in leases:
            amounts = amounts_of(lease, since, until, closed=asked.closed)
            examined[lease.organization_id].add(amounts, on_wire(Prefix.LEASE, lease.lease_id))


async def _examine_books(
    world: World, asked: Reconciliation, examined: dict[OrganizationId, Examined]
) -> None:
    """Compare the charges with the ledger and with exports, day by day."""
    of_all: ExportedSum | None = None
    async with world.db.reading() as connection:
        if asked.export_id is not None:
            of_all = await reconciliations.export(connection, asked.export_id)
        own: dict[OrganizationId, ExportedSum] = {
            export.organization_id: export
            for export in await reconciliations.own_exports(
                connection, list(examined), period=asked.period, asked_at=asked.asked_at
            )
        }
    for customer_id, export in own.items():
        examined[customer_id].add(Amounts(in_own_export=export.amount_nano))
    cuts = [_cut(customer_id, own.get(customer_id), of_all) for customer_id in examined]
    async with world.db.reading() as connection:
        documents = await reconciliations.documents(connection, cuts, period=asked.period)
    for sums in documents:
        examined[sums.organization_id].add(
            Amounts(billed_before_own_export=sums.before_own_export, billed_before_export=sums.before_export)
        )
    for since, until in _parts(asked.period):
        async with world.db.reading() as connection:
            found = await reconciliations.booked(
                connection, cuts, period=asked.period, since=since, until=until
            )
            for books in found:
                examined[books.organization_id].add(books.amounts)
                if books.booked != books.posted:
                    charge_ids = await reconciliations.not_posted(
                        connection,
                        books.organization_id,
                        period=asked.period,
                        since=since,
                        until=until,
                        limit=EXAMPLES_MAX,
                    )
                    examined[books.organization_id].give(
                        LinkName.POSTED, *(on_wire(Prefix.CHARGE, charge_id) for charge_id in charge_ids)
                    )


def _cut(customer_id: OrganizationId, own: ExportedSum | None, of_all: ExportedSum | None) -> Cut:
    return Cut(
        customer_id,
        own_cut_at=None if own is None else own.cut_at,
        own_issued_until=None if own is None else own.issued_until,
        cut_at=None if of_all is None else of_all.cut_at,
        issued_until=None if of_all is None else of_all.issued_until,
    )


async def _examine_invoices(
    world: World, asked: Reconciliation, examined: dict[OrganizationId, Examined]
) -> None:
    """Compare what is booked with the invoices of the month, and these and the credit notes with the ledger."""
    async with world.db.reading() as connection:
        invoices = await reconciliations.invoices(connection, list(examined), period=asked.period)
        notes = await credit_notes.reconciled(connection, list(examined), period=asked.period)
    for sums in notes:
        amounts = Amounts(credit_note_totals=sums.totals, credit_note_postings=sums.postings)
        examined[sums.organization_id].add(amounts)
    of_customers = {invoice.organization_id: invoice for invoice in invoices}
    for customer_id, customer in examined.items():
        customer.add(invoice_amounts(of_customers.get(customer_id), customer.amounts))


def _parts(month: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The days of a month, after all time before it, of which late charges are booked in it.

    A statement about all charges of a large customer and a month could take longer than statements may.
    """
    days = [month + number * _DAY for number in range((month_after(month) - month) // _DAY + 1)]
    return pairwise((_BEFORE_ALL, *days))


async def _suppliers(world: World, month: datetime) -> Amounts:
    """What suppliers invoiced us, and what the ledger has of it."""
    async with world.db.reading() as connection:
        found = await supplier_invoices.reconciled(connection, period=month)
    return Amounts(supplier_lines=found.lines, supplier_cost=found.cost, supplier_owed=found.owed)


async def _exported(world: World, export_id: UUID) -> Amounts:
    """The sum that an export of all customers states."""
    async with world.db.reading() as connection:
        export = await reconciliations.export(connection, export_id)
    return Amounts() if export is None else Amounts(in_export=export.amount_nano)


LOOP = Loop(NAME, timedelta(seconds=2), activate, lasts=timedelta(minutes=10))
