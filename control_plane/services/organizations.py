"""Organizations: create them with a wallet and a default project; read one's own, or any one for operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import ledger, organizations, projects
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.organizations import Organization
from control_plane.domain.ids import LedgerAccountId, OrganizationId, ProjectId
from control_plane.domain.ledger import AccountKind, LedgerAccount
from control_plane.domain.permission import Role
from control_plane.domain.project import DEFAULT_NAME, Project
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import api_keys
from control_plane.services.api_keys import IssuedKey
from control_plane.world import World

__all__ = ["Organization"]  # For controllers, which must not import the layer below.

GPU_QUOTA_DEFAULT = 64


@dataclass(frozen=True, slots=True)
class CreatedOrganization:
    organization: Organization
    issued: IssuedKey
    """Its first API key."""


async def create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    name: str,
    *,
    gpu_quota: int = GPU_QUOTA_DEFAULT,
    platform: bool = False,
) -> Refused | None:
    """Create an organization under an id chosen by the caller (the tenant of this transaction)."""
    now = world.now()
    if not await organizations.insert(
        connection, organization_id, name, gpu_quota=gpu_quota, platform=platform, now=now
    ):
        return Refused(RefusalCode.NAME_TAKEN, f"There is an organization called {name!r} already.")
    wallet = LedgerAccount(LedgerAccountId(world.new_id()), organization_id, AccountKind.WALLET, now)
    await ledger.open_account(connection, wallet)
    await projects.insert(
        connection, Project(ProjectId(world.new_id()), organization_id, DEFAULT_NAME, created_at=now)
    )
    return None


async def create_with_key(
    connection: Connection,
    world: World,
    *,
    by: OrganizationId,
    name: str,
    gpu_quota: int,
    key_name: str,
) -> CreatedOrganization | Refused:
    """Create an organization and its first key, in a transaction of another organization, `by`."""
    organization_id = OrganizationId(world.new_id())
    async with acting_for(connection, organization_id, back_to=by):
        refused = await create(connection, world, organization_id, name, gpu_quota=gpu_quota)
        if refused is not None:
            return refused
        issued = await api_keys.issue(connection, world, organization_id, name=key_name, role=Role.CUSTOMER)
        made = await organizations.get(connection, organization_id)
    if made is None:
        raise LookupError(f"organization {organization_id} is not visible to its own tenant")
    return CreatedOrganization(made, issued)


async def page(world: World, *, after: tuple[datetime, UUID] | None, limit: int) -> Sequence[Organization]:
    """All organizations, oldest first, for operators. Each is read as its own tenant."""
    async with world.db.reading() as connection:
        ids = await organizations.ids(connection, after=after, limit=limit)
    return [await show(world, organization_id) for organization_id in ids]


async def find(world: World, organization_id: OrganizationId) -> Organization | Refused:
    """Any organization, for operators."""
    async with world.db.reading(organization_id) as connection:
        found = await organizations.get(connection, organization_id)
    return found or Refused(RefusalCode.NOT_FOUND, "There is no such organization.")


async def show(world: World, organization_id: OrganizationId) -> Organization:
    async with world.db.reading(organization_id) as connection:
        found = await organizations.get(connection, organization_id)
    if found is None:
        raise LookupError(f"organization {organization_id} does not exist")
    return found
