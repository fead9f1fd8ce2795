"""Service accounts: the machine identities of an organization."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import service_accounts
from control_plane.db.connection import Connection
from control_plane.domain.ids import OrganizationId, ServiceAccountId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.service_account import ServiceAccount
from control_plane.domain.subject import SubjectState
from control_plane.world import World

_NOT_FOUND = Refused(
    RefusalCode.NOT_FOUND, "There is no such service account; GET /v1/service-accounts lists yours."
)


async def create(
    connection: Connection, world: World, organization_id: OrganizationId, *, name: str
) -> ServiceAccount | Refused:
    """Add a service account, which has no role yet."""
    account = ServiceAccount(ServiceAccountId(world.new_id()), name, SubjectState.ACTIVE, world.now())
    if await service_accounts.insert(connection, organization_id, account):
        return account
    return Refused(RefusalCode.NAME_TAKEN, f"There is a service account called {name!r} already.")


async def page(
    world: World, organization_id: OrganizationId, *, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[ServiceAccount]:
    async with world.db.reading(organization_id) as connection:
        return await service_accounts.page(connection, organization_id, after=after, limit=limit)


async def show(
    connection: Connection, organization_id: OrganizationId, account_id: ServiceAccountId
) -> ServiceAccount | Refused:
    """One service account that is not removed."""
    found = await service_accounts.get(connection, organization_id, account_id)
    return _NOT_FOUND if found is None or found.state is SubjectState.REMOVED else found


async def get(
    world: World, organization_id: OrganizationId, account_id: ServiceAccountId
) -> ServiceAccount | Refused:
    async with world.db.reading(organization_id) as connection:
        return await show(connection, organization_id, account_id)
