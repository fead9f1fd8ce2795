"""Organizations: create them with a wallet and a default project; read one's own, or any one for operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import envelopes, ledger, organizations, projects, role_bindings, service_accounts
from control_plane.db.connection import Connection
from control_plane.db.engine import acting_for
from control_plane.db.envelopes import EnvelopeScope
from control_plane.db.organizations import Organization
from control_plane.domain.actor import ADMINISTRATOR
from control_plane.domain.envelope import Envelope, Level
from control_plane.domain.ids import (
    EnvelopeId,
    LedgerAccountId,
    OrganizationId,
    ProjectId,
    RoleBindingId,
    ServiceAccountId,
)
from control_plane.domain.ledger import OF_ORGANIZATIONS, LedgerAccount
from control_plane.domain.organization import OrganizationState
from control_plane.domain.project import DEFAULT_NAME, Project
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.role import Role
from control_plane.domain.role_binding import RoleBinding
from control_plane.domain.scope import ORGANIZATION, Scope
from control_plane.domain.service_account import ServiceAccount
from control_plane.domain.subject import SubjectState
from control_plane.services import api_keys
from control_plane.services.api_keys import IssuedKey
from control_plane.services.environments import add_default_environment
from control_plane.services.networks import add_default_network
from control_plane.world import World

__all__ = ["Organization"]  # For controllers, which must not import the layer below.

GPU_QUOTA_DEFAULT = 64
FIRST_ACCOUNT = "owner"
"""The name of an organization's first service account."""


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
    """Create an organization under an id chosen by the caller (the tenant of this transaction).

    `gpu_quota` is the limit of its ceiling, the only one that it begins with.

    `platform`: it is the organization of those who run the installation.
    """
    now = world.now()
    if not await organizations.insert(connection, organization_id, name, platform=platform, now=now):
        return Refused(RefusalCode.NAME_TAKEN, f"There is an organization called {name!r} already.")
    for kind in OF_ORGANIZATIONS:
        account = LedgerAccount(LedgerAccountId(world.new_id()), organization_id, kind, now)
        await ledger.open_account(connection, account)
    await envelopes.put(
        connection,
        EnvelopeScope(organization_id, Level.CEILING),
        EnvelopeId(world.new_id()),
        Envelope(gpus=gpu_quota),
        by=ADMINISTRATOR.name,
        now=now,
    )
    project = Project(ProjectId(world.new_id()), organization_id, DEFAULT_NAME, created_at=now)
    await projects.insert(connection, project)
    await add_default_environment(connection, world, project)
    network = await add_default_network(connection, world, project)
    return network if isinstance(network, Refused) else None


async def create_first_account(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    name: str,
    *,
    role: Role,
    scope: Scope,
) -> ServiceAccount:
    """Create a service account with a role, for the first subjects of an organization."""
    now = world.now()
    account = ServiceAccount(ServiceAccountId(world.new_id()), name, SubjectState.ACTIVE, now)
    await service_accounts.insert(connection, organization_id, account)
    binding = RoleBinding(
        RoleBindingId(world.new_id()), account.subject, role, scope, now, ADMINISTRATOR.name
    )
    await role_bindings.insert(connection, organization_id, binding)
    return account


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
        account = await create_first_account(
            connection, world, organization_id, FIRST_ACCOUNT, role=Role.OWNER, scope=ORGANIZATION
        )
        issued = await api_keys.issue(connection, world, organization_id, account.subject, name=key_name)
        made = await organizations.get(connection, organization_id)
    if made is None:
        raise LookupError(f"organization {organization_id} is not visible to its own tenant")
    return CreatedOrganization(made, issued)


async def page(
    world: World,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
    states: Sequence[OrganizationState] | None = None,
    part: str | None = None,
) -> Sequence[Organization]:
    """Organizations in any of these states whose names contain this part, oldest first, for operators.

    Each is read as its own tenant.
    """
    async with world.db.reading() as connection:
        ids = await organizations.ids(connection, after=after, limit=limit, states=states, part=part)
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
