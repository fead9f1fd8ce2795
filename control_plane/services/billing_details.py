"""Billing details: finance sets who is invoiced, where, and at which rate of tax."""

from control_plane.db import billing_details, organizations
from control_plane.db.billing_details import StoredDetails
from control_plane.db.engine import acting_for
from control_plane.domain.ids import OrganizationId
from control_plane.domain.invoice import BillingDetails
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = ["StoredDetails"]  # For controllers, which must not import the layer below.


async def get(
    world: World, organization_id: OrganizationId, *, platform: OrganizationId
) -> StoredDetails | Refused:
    async with world.db.reading(platform) as connection:
        found = await billing_details.get(connection, organization_id)
    if found is None:
        return Refused(RefusalCode.NOT_FOUND, "Nobody has set the billing details of such an organization.")
    return found


async def put(
    world: World,
    organization_id: OrganizationId,
    details: BillingDetails,
    *,
    platform: OrganizationId,
    by: str,
) -> StoredDetails | Refused:
    """Set the details of an organization. They are those of its next invoices; the issued ones keep theirs."""
    now = world.now()
    async with world.db.transaction(platform) as connection:
        async with acting_for(connection, organization_id, back_to=platform):
            organization = await organizations.get(connection, organization_id)
        if organization is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
        await billing_details.set_(connection, organization_id, details, now=now, by=by)
    return StoredDetails(details, now, by)
