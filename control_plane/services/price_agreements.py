"""Prices that finance agrees on with customers."""

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from control_plane.db import catalogue, organizations, price_agreements
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.domain.ids import OrganizationId, PriceAgreementId
from control_plane.domain.money import Nano
from control_plane.domain.price_agreement import PriceAgreement, ended, proposed
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.sla import SlaTier
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class NewAgreement:
    """What is to be agreed on."""

    organization_id: OrganizationId
    sku: str
    region: str | None
    sla: SlaTier | None
    purchase: PurchaseKind
    nano_per_unit_hour: Nano
    stopped_nano_per_unit_hour: Nano | None
    valid_from: datetime | None
    """None: now."""
    valid_until: datetime | None
    by: str
    """The id of the subject."""
    reason: str


async def make(
    connection: Connection, world: World, new: NewAgreement, *, platform: OrganizationId
) -> PriceAgreement | Refused:
    """Agree on a price. Refused where another agreement is the price of the same at some moment of its time."""
    now = world.now()
    async with acting_for(connection, new.organization_id, back_to=platform):
        if await organizations.get(connection, new.organization_id) is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
    await price_agreements.lock(connection, new.organization_id)
    agreement = PriceAgreement(
        id=PriceAgreementId(world.new_id()),
        organization_id=new.organization_id,
        sku=new.sku,
        region=new.region,
        sla=new.sla,
        purchase=new.purchase,
        nano_per_unit_hour=new.nano_per_unit_hour,
        stopped_nano_per_unit_hour=new.stopped_nano_per_unit_hour,
        valid_from=now if new.valid_from is None else new.valid_from,
        valid_until=new.valid_until,
        agreed_at=now,
        agreed_by=new.by,
        reason=new.reason,
    )
    refused = proposed(
        agreement,
        await price_agreements.of(connection, new.organization_id, new.sku),
        await catalogue.prices(connection, now=now, sku=new.sku),
        now,
    )
    if refused is not None:
        return refused
    await price_agreements.insert(connection, agreement)
    return agreement


async def end(
    connection: Connection, world: World, agreement_id: PriceAgreementId, *, at: datetime | None, by: str
) -> PriceAgreement | Refused:
    """Let an agreement be over from now or a moment to come. Leases that have its price keep it."""
    now = world.now()
    agreement = await price_agreements.locked(connection, agreement_id)
    if agreement is None:
        return Refused(RefusalCode.NOT_FOUND, "There is no such agreement.")
    until = ended(agreement, at, now)
    if isinstance(until, Refused):
        return until
    await price_agreements.end(connection, agreement_id, until, by=by, now=now)
    return replace(agreement, valid_until=until)


async def page(
    world: World,
    platform: OrganizationId,
    *,
    organization_id: OrganizationId | None,
    before: tuple[datetime, UUID] | None,
    limit: int,
) -> list[PriceAgreement]:
    """The agreements with one organization or with all, newest first."""
    async with world.db.reading(platform) as connection:
        return await price_agreements.page(
            connection, organization_id=organization_id, before=before, limit=limit
        )
