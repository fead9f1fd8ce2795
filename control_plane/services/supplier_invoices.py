"""Suppliers' invoices as they were imported, what is posted of them, and the three-way match of a month."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import child_costs, ledger, machine_costs, organizations, supplier_invoices
from control_plane.db.connection import Connection
from control_plane.db.supplier_invoices import SupplierInvoice, SupplierPosting
from control_plane.domain import ledger as ledger_domain
from control_plane.domain.ids import OrganizationId
from control_plane.domain.ledger import Approval
from control_plane.domain.match import Match, MatchedMachine, MatchWord, ordered
from control_plane.domain.money import NOTHING, Nano
from control_plane.domain.period import month_after, month_of, month_text
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.supplier_invoice import BilledMachine, SupplierEvent
from control_plane.world import World

__all__ = ["SupplierInvoice"]  # For controllers, which must not import the layer below.

_UNKNOWN = Refused(RefusalCode.NOT_FOUND, "There is no supplier's invoice with this id.")
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Deciding:
    """What somebody decides on a supplier's invoice."""

    invoice_id: UUID
    reason: str | None
    by: str
    """The id of the subject."""
    platform: OrganizationId
    """The operators' organization, in whose name the ledger has it."""


async def post(connection: Connection, world: World, deciding: Deciding) -> SupplierInvoice | Refused:
    """Post a supplier's invoice: what it comes to, less what is posted of the supplier's month already.

    Once it is posted, this has no effect. Refused for an import that another one replaced or that is void, and, without
    a reason, while the match of the month has a difference that nothing explains.
    """
    found = await _decidable(connection, deciding)
    if isinstance(found, Refused) or found.state is SupplierEvent.POSTED:
        return found
    if found.state is SupplierEvent.VOIDED:
        return Refused(
            RefusalCode.SUPPLIER_INVOICE_VOID, "This invoice is void; import the supplier's new one."
        )
    reason = deciding.reason
    if reason is None:
        # By this transaction, which would idle while another connection reads the machines of a month.
        report = await _match(connection, world.now(), found.month, found.provider, lines=0)
        if isinstance(report, Refused):
            return report
        if not report.is_matched:
            why = f"{report.open_count} machines have a difference that nothing explains; give a reason to post it."
            return Refused(RefusalCode.SUPPLIER_INVOICE_DIFFERS, why)
        reason = "matched"
    return await _decide(connection, world, deciding, found, event=SupplierEvent.POSTED, reason=reason)


async def void(
    connection: Connection, world: World, deciding: Deciding, reason: str
) -> SupplierInvoice | Refused:
    """Take a supplier's invoice back, with what is posted of its month. Once it is void, this has no effect.

    Refused for an import that another one replaced.
    """
    found = await _decidable(connection, deciding)
    if isinstance(found, Refused) or found.state is SupplierEvent.VOIDED:
        return found
    return await _decide(connection, world, deciding, found, event=SupplierEvent.VOIDED, reason=reason)


async def _decidable(connection: Connection, deciding: Deciding) -> SupplierInvoice | Refused:
    """The invoice, if it is the last import of its month. Nobody else imports or posts one meanwhile."""
    found = await supplier_invoices.get(connection, deciding.invoice_id)
    if found is None:
        return _UNKNOWN
    await supplier_invoices.lock(connection, found.provider)
    last = await supplier_invoices.last(connection, found.provider, found.month)
    if last is None or last.id != found.id:
        why = f"A later import of {found.provider} counts in {month_text(found.month)}."
        return Refused(RefusalCode.SUPPLIER_INVOICE_REPLACED, why)
    return last


async def _decide(
    connection: Connection,
    world: World,
    deciding: Deciding,
    invoice: SupplierInvoice,
    *,
    event: SupplierEvent,
    reason: str,
) -> SupplierInvoice | Refused:
    now = world.now()
    wanted = invoice.amount_nano if event is SupplierEvent.POSTED else NOTHING
    amount = Nano(wanted - await supplier_invoices.posted(connection, invoice.provider, invoice.month))
    posting = SupplierPosting(
        id=world.new_id(),
        invoice_id=invoice.id,
        provider=invoice.provider,
        month=invoice.month,
        event=event,
        amount_nano=amount,
        reason=reason,
        decided_at=now,
        decided_by=deciding.by,
    )
    await supplier_invoices.insert_posting(connection, posting)
    if amount:
        await organizations.standing(connection, deciding.platform, lock=True)
        what = f"{invoice.provider}, {month_text(invoice.month)}, {event}: {reason}"
        transaction = ledger_domain.supplier_invoice(
            deciding.platform,
            amount,
            posting_id=posting.id,
            # A cost of its own month, and a correction where that is closed.
            at=min(now, month_after(invoice.month) - _SECOND),
            approval=Approval(deciding.by, what),
        )
        await ledger.post(connection, [(world.new_id(), transaction)], now=now)
    decided = await supplier_invoices.get(connection, invoice.id)
    return _UNKNOWN if decided is None else decided


async def page(
    world: World, platform: OrganizationId, *, before: tuple[datetime, UUID] | None, limit: int
) -> list[SupplierInvoice]:
    """The imports, newest first."""
    async with world.db.reading(platform) as connection:
        return await supplier_invoices.page(connection, before=before, limit=limit)


@dataclass(frozen=True, slots=True)
class MatchReport:
    month: datetime
    until: datetime
    """The end of the month, or now while it is not over."""
    providers: tuple[str, ...]
    """Those whose invoices are matched."""
    missing: tuple[str, ...]
    """Those with machines in the month, of which no invoice is imported."""
    billed_nano: Nano
    """What customers were charged for the time of all matched machines."""
    used_nano: Nano
    expected_nano: Nano
    theirs_nano: Nano
    words: Mapping[MatchWord, Nano]
    """The sum of each word."""
    machines: tuple[MatchedMachine, ...]
    """Those that somebody has to look at first."""
    machines_count: int
    open_count: int
    """How many machines have a difference that nothing explains."""

    @property
    def is_matched(self) -> bool:
        return not self.open_count and not self.missing


async def match(
    world: World, platform: OrganizationId, month: datetime | None, provider: str | None, *, lines: int
) -> MatchReport | Refused:
    """Compare our meter, the suppliers' records and the customers' bills of a month, machine by machine.

    `platform` is the operators' organization. None as the month is the current one; `lines` machines are named at most.
    Refused for a month that has not begun.
    """
    async with world.db.reading(platform) as connection:
        return await _match(connection, world.now(), month, provider, lines=lines)


async def _match(
    connection: Connection, now: datetime, month: datetime | None, provider: str | None, *, lines: int
) -> MatchReport | Refused:
    month = month_of(now) if month is None else month
    if now < month:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{month_text(month)} has not begun.")
    until = min(now, month_after(month))
    found = {
        theirs.provider: Match(month, until, await _by_machine(connection, theirs.id))
        for theirs in await supplier_invoices.counting(connection, month, provider)
    }
    missing = await _add_ours(connection, found, month, until, provider)
    for each in found.values():
        each.finish()
    machines = ordered(machine for each in found.values() for machine in each.machines)
    return MatchReport(
        month=month,
        until=until,
        providers=tuple(sorted(found)),
        missing=tuple(sorted(missing)),
        billed_nano=Nano(sum(machine.billed_nano for machine in machines)),
        used_nano=Nano(sum(machine.used_nano for machine in machines)),
        expected_nano=Nano(sum(machine.expected_nano for machine in machines)),
        theirs_nano=Nano(sum(machine.theirs_nano for machine in machines)),
        words={word: Nano(sum(each.total(word) for each in found.values())) for word in MatchWord},
        machines=tuple(machines[:lines]),
        machines_count=len(machines),
        open_count=sum(machine.is_open for machine in machines),
    )


async def _add_ours(
    connection: Connection, found: Mapping[str, Match], since: datetime, until: datetime, provider: str | None
) -> set[str]:
    """Hold our records of a month against the invoices. Answers the providers that bill us and whose are not there."""
    missing = set[str]()
    async for records in machine_costs.of_month(connection, since=since, until=until, provider=provider):
        for record in records:
            if record.provider in found:
                found[record.provider].add(record)
            elif record.cost(since, until):
                missing.add(record.provider)
    async for children in child_costs.of_month(connection, since=since, until=until, provider=provider):
        for child in children:
            if child.provider in found:
                found[child.provider].add_child(child)
            elif child.cost(since, until):
                missing.add(child.provider)
    return missing


async def _by_machine(connection: Connection, invoice_id: UUID) -> dict[str, BilledMachine]:
    """What an invoice bills for each machine, added up while its lines are read."""
    found: dict[str, BilledMachine] = {}
    async for lines in supplier_invoices.lines(connection, invoice_id):
        for line in lines:
            found.setdefault(line.machine, BilledMachine()).add(line)
    return found
