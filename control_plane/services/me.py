"""Who asks, for people: the names behind a principal."""

from dataclasses import dataclass

from control_plane.db import organizations
from control_plane.domain.access import Principal
from control_plane.domain.service_account import ServiceAccount
from control_plane.domain.user import User
from control_plane.services import subjects
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class Me:
    principal: Principal
    organization: str
    """The organization's name."""
    subject: User | ServiceAccount


async def me(world: World, principal: Principal) -> Me:
    async with world.db.reading(principal.organization_id) as connection:
        organization = await organizations.get(connection, principal.organization_id)
        subject = await subjects.find(connection, principal.organization_id, principal.subject)
    if organization is None or subject is None:
        raise LookupError(f"{principal.subject.on_wire} is not visible to its own organization")
    return Me(principal, organization.name, subject)
