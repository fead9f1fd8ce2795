"""What an operator asks: what the loops did, which machines belong to nobody, how the accounts are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import accounts, loops
from control_plane.db import organizations as organization_rows
from control_plane.db.accounts import Account
from control_plane.db.engine import acting_for
from control_plane.domain.ids import OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import billing, organizations
from control_plane.services.organizations import IssuedKey, Organization
from control_plane.world import World

__all__ = ["Account", "CreatedOrganization"]


async def loop_reports(world: World) -> Sequence[dict[str, Any]]:
    async with world.db.reading() as connection:
        return await loops.reports(connection)


async def orphans(world: World) -> Sequence[dict[str, Any]]:
    """Machines with our launch keys that no open record claims, as the last lists showed them."""
    async with world.db.reading() as connection:
        return await accounts.strangers_shown(connection)


async def provider_accounts(world: World) -> Sequence[Account]:
    async with world.db.reading() as connection:
        return await accounts.every(connection)


@dataclass(frozen=True, slots=True)
class CreatedOrganization:
    organization: Organization
    issued: IssuedKey


async def create_organization(
    connection: AsyncConnection,
    world: World,
    operator: OrganizationId,
    *,
    name: str,
    gpu_quota: int,
    key_name: str,
) -> CreatedOrganization | Refused:
    """Make an organization and its first key, in a transaction that belongs to the operator's own."""
    organization_id = OrganizationId(world.new_id())
    async with acting_for(connection, organization_id, back_to=operator):
        refused = await organizations.create(connection, world, organization_id, name, gpu_quota=gpu_quota)
        if refused is not None:
            return refused
        issued = await organizations.issue_api_key(
            connection, world, organization_id, name=key_name, operator=False
        )
        made = await organization_rows.get(connection, organization_id)
    if made is None:
        raise LookupError(f"organization {organization_id} is not visible to its own tenant")
    return CreatedOrganization(made, issued)


async def credit_organization(
    connection: AsyncConnection,
    world: World,
    operator: OrganizationId,
    organization_id: OrganizationId,
    amount: Nano,
    *,
    key: str,
) -> Organization | Refused:
    """Post a top-up to another organization, once per key. Answers the organization afterwards."""
    async with acting_for(connection, organization_id, back_to=operator):
        before = await organization_rows.get(connection, organization_id)
        if before is None:
            return Refused(RefusalCode.NOT_FOUND, "There is no such organization.")
        await billing.credit(connection, world, organization_id, amount, key=key)
        after = await organization_rows.get(connection, organization_id)
    if after is None:
        raise LookupError(f"organization {organization_id} vanished")
    return after
