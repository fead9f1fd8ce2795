"""Credits: money that an operator posts to an organization."""

from control_plane.db import organizations
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.organizations import Organization
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.refusal import Refused
from control_plane.services import billing
from control_plane.world import World


async def create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    amount: Nano,
    *,
    by: OrganizationId,
    key: str,
) -> Organization | Refused:
    """Post a credit in a transaction of another organization, `by`; each `key` is posted only once.

    Refused once the organization is closing.

    Returns the organization with its balance after the credit.
    """
    async with acting_for(connection, organization_id, back_to=by):
        posted = await billing.credit(connection, world, organization_id, amount, key=key)
        if isinstance(posted, Refused):
            return posted
        after = await organizations.get(connection, organization_id)
    if after is None:
        raise LookupError(f"organization {organization_id} vanished")
    return after
