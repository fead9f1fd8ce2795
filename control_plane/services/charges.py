"""Charges for finance: what one follows from, from the journal to the ledger, and those of a lease."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import charges, invoices, periods
from control_plane.db.charges import ChargePosting, FullCharge, LeaseCharge, LineOfInvoice
from control_plane.db.journal import Line
from control_plane.domain import rating
from control_plane.domain.ids import LeaseId, OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = [
    "ChargePosting",
    "FullCharge",
    "LeaseCharge",
    "LineOfInvoice",
]  # For controllers, which must not import the layer below.


@dataclass(frozen=True, slots=True)
class ExplainedCharge:
    charge: FullCharge
    events: Sequence[Line]
    """The journal's lines about the bill before and after the charged time; the latter is missing while it runs on."""
    postings: Sequence[ChargePosting]
    period_closed: bool
    invoice_line: LineOfInvoice | None
    """Where the customer is invoiced for it; None while its month has no invoice."""

    @property
    def computed_nano(self) -> Nano | None:
        """What its interval costs at its price, computed anew; None without an interval."""
        charge = self.charge
        if charge.unit_seconds_before is None or charge.metered_unit_seconds is None:
            return None
        return rating.charge(
            charge.nano_per_unit_hour, charge.unit_seconds_before, charge.metered_unit_seconds
        )


async def explain(world: World, platform: OrganizationId, charge_id: UUID) -> ExplainedCharge | Refused:
    """A charge of any organization, which is read as its own tenant."""
    async with world.db.reading(platform) as connection:
        owner = await charges.owner(connection, charge_id=charge_id)
    if owner is not None:
        async with world.db.reading(owner) as connection:
            charge = await charges.get(connection, owner, charge_id)
            if charge is not None:
                return ExplainedCharge(
                    charge,
                    await charges.events_around(connection, charge),
                    await charges.postings(connection, owner, charge_id),
                    await periods.is_closed(connection, owner, charge.period),
                    await charges.invoice_line(connection, owner, charge_id),
                )
    return Refused(RefusalCode.NOT_FOUND, "There is no such charge.")


async def of_lease(
    world: World, platform: OrganizationId, lease_id: LeaseId, *, after: int, limit: int
) -> Sequence[LeaseCharge] | Refused:
    """The charges of a lease of any organization, in the order of its intervals, behind the number `after`."""
    async with world.db.reading(platform) as connection:
        owner = await charges.owner(connection, lease_id=lease_id)
    if owner is None:
        return Refused(RefusalCode.LEASE_NOT_FOUND, "There is no such lease.")
    async with world.db.reading(owner) as connection:
        return await charges.of_lease(connection, owner, lease_id, after=after, limit=limit)


async def of_invoice_line(
    world: World,
    platform: OrganizationId,
    invoice_id: UUID,
    line: int,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> Sequence[LeaseCharge] | Refused:
    """The charges that a line of an invoice of any organization adds up, oldest first; none unless it is usage."""
    async with world.db.reading(platform) as connection:
        invoice = await invoices.get(connection, invoice_id, None)
        if invoice is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no invoice with this id.")
        lines = await invoices.lines(connection, invoice_id)
    if line not in {known.number for known in lines}:
        return Refused(
            RefusalCode.NOT_FOUND, f"The invoice has no line {line}; its lines are 1 to {len(lines)}."
        )
    async with world.db.reading(invoice.organization_id) as connection:
        return await charges.of_invoice_line(
            connection, invoice.organization_id, invoice_id, line, after=after, limit=limit
        )
