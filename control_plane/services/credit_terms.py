"""Credit terms: finance decides how far a customer may use capacity before it pays."""

from control_plane.db import balance_alerts, credit_terms, holds, organizations
from control_plane.db.engine import acting_for
from control_plane.domain.credit_terms import CreditTerms
from control_plane.domain.ids import OrganizationId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = ["CreditTerms"]  # For controllers, which must not import the layer below.


async def get(
    world: World, organization_id: OrganizationId, *, platform: OrganizationId
) -> CreditTerms | Refused:
    async with world.db.reading(platform) as connection:
        found = await credit_terms.get(connection, organization_id)
    if found is None:
        return Refused(RefusalCode.NOT_FOUND, "Nobody has given such an organization credit: it is prepaid.")
    return found


async def put(
    world: World,
    organization_id: OrganizationId,
    terms: CreditTerms,
    *,
    platform: OrganizationId,
) -> Refused | None:
    """Set the terms of an organization.

    A limit counts for the next hold, and the days for the next invoice. Below what is used, a limit ends leases as an
    exhausted balance does.
    """
    async with world.db.transaction(platform) as connection:
        async with acting_for(connection, organization_id, back_to=platform):
            # With the lock, nothing is admitted on the terms of before.
            if await organizations.standing(connection, organization_id, lock=True) is None:
                return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
            await balance_alerts.look_again(connection, organization_id, due_at=world.now())
            await holds.look_at_terms(connection, organization_id, now=world.now())
        await credit_terms.set_(connection, organization_id, terms)
    return None
