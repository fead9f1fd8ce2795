"""Suppliers' invoices and the three-way match of a month, for finance."""

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

from control_plane.db import machine_costs, supplier_invoices
from control_plane.db.connection import Connection
from control_plane.db.supplier_invoices import SupplierInvoice
from control_plane.domain.ids import OrganizationId
from control_plane.domain.match import Match, MatchedMachine, MatchWord, ordered
from control_plane.domain.money import Nano
from control_plane.domain.period import month_after, month_of, month_text
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.supplier_invoice import SupplierLine, invalid, parse
from control_plane.world import World

__all__ = ["SupplierInvoice"]  # For controllers, which must not import the layer below.


async def import_csv(
    connection: Connection, world: World, provider: str, month: datetime, content: str, *, by: str
) -> SupplierInvoice | Refused:
    """Store a supplier's whole invoice of a month. It takes the place of an earlier import, which is kept.

    The same file again changes nothing. Refused for a month that has not begun, for a provider at which there is no
    account, and for a file of which any line is wrong.
    """
    now = world.now()
    if now < month:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{month_text(month)} has not begun.")
    if not await supplier_invoices.is_known(connection, provider):
        return Refused(RefusalCode.NOT_FOUND, f"There is no account at a provider {provider}.")
    rows = _rows(content)
    lines = rows if isinstance(rows, Refused) else parse(rows, month)
    if isinstance(lines, Refused):
        return lines
    await supplier_invoices.lock(connection, provider)
    digest = hashlib.sha256(content.encode()).hexdigest()
    last = await supplier_invoices.last(connection, provider, month)
    if last is not None and last.sha256 == digest:
        return last
    amount = Nano(sum(line.amount_nano for line in lines))
    invoice = SupplierInvoice(world.new_id(), provider, month, digest, len(lines), amount, now, by)
    await supplier_invoices.insert(connection, invoice, lines)
    return invoice


def _rows(content: str) -> list[tuple[int, list[str]]] | Refused:
    """The fields of each line of a CSV file (RFC 4180), with its number."""
    reader = csv.reader(content.splitlines(keepends=True), strict=True)
    try:
        return [(reader.line_num, fields) for fields in reader]
    except csv.Error as error:
        return invalid(reader.line_num, f"is no CSV: {error}")


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
    now = world.now()
    month = month_of(now) if month is None else month
    if now < month:
        return Refused(RefusalCode.PERIOD_IN_FUTURE, f"{month_text(month)} has not begun.")
    until = min(now, month_after(month))
    async with world.db.reading(platform) as connection:
        found = {
            theirs.provider: Match(month, until, _by_machine(theirs.lines))
            for theirs in await supplier_invoices.lines(connection, month, provider)
        }
        missing: set[str] = set()
        async for records in machine_costs.of_month(connection, since=month, until=until, provider=provider):
            for record in records:
                if record.provider in found:
                    found[record.provider].add(record)
                elif record.cost(month, until):
                    missing.add(record.provider)
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


def _by_machine(lines: Sequence[SupplierLine]) -> dict[str, list[SupplierLine]]:
    in_order = sorted(lines, key=lambda line: line.machine)
    return {machine: list(some) for machine, some in groupby(in_order, lambda line: line.machine)}
