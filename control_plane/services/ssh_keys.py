"""SSH public keys that give access to an organization's machines."""

from collections.abc import Sequence
from uuid import UUID

from control_plane.db import organizations, ssh_keys
from control_plane.db.connection import Connection
from control_plane.db.ssh_keys import SshKey
from control_plane.domain.access import EVERYWHERE, Reach
from control_plane.domain.ids import OrganizationId, ProjectId, SshKeyId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.ssh_public_key import InvalidSshKeyError, parse
from control_plane.services import projects
from control_plane.world import World

__all__ = ["SshKey"]  # For controllers, which must not import the layer below.

KEYS_MAX = 100
"""SSH keys of one organization."""


async def add(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    *,
    name: str,
    public_key: str,
    project: str | None = None,
    reach: Reach,
) -> SshKey | Refused:
    """Store a key, for one project or for the organization. Neither its name nor itself may be stored there already."""
    project_id = None
    if project is not None:
        named = await projects.named(connection, organization_id, project, reach=reach)
        if isinstance(named, Refused):
            return named
        project_id = named.id
    elif not reach.organization:
        why = (
            "You may not add SSH keys for all of the organization's leases; name the project that it is for."
        )
        return Refused(RefusalCode.PROJECT_UNKNOWN, why)
    try:
        parsed = parse(public_key)
    except InvalidSshKeyError as error:
        return Refused(RefusalCode.SSH_KEY_INVALID, str(error))
    await organizations.standing(
        connection, organization_id, lock=True
    )  # One at a time, so that the bound holds.
    known = await ssh_keys.every(connection, organization_id, EVERYWHERE)
    refused = _refusal(known, project_id, name, parsed.fingerprint)
    if refused is not None:
        return refused
    key = SshKey(SshKeyId(world.new_id()), name, parsed.line, parsed.fingerprint, project_id, world.now())
    await ssh_keys.insert(connection, organization_id, key)
    return key


def _refusal(
    known: Sequence[SshKey], project_id: ProjectId | None, name: str, fingerprint: str
) -> Refused | None:
    for key in (key for key in known if key.project_id == project_id):
        if key.name == name:
            return Refused(RefusalCode.NAME_TAKEN, f"There is an SSH key called {name!r} already.")
        if key.fingerprint == fingerprint:
            why = f"This key is stored already, as {key.name!r}."
            return Refused(RefusalCode.SSH_KEY_DUPLICATE, why)
    if len(known) >= KEYS_MAX:
        why = f"An organization has at most {KEYS_MAX} SSH keys; delete one that is no longer used."
        return Refused(RefusalCode.SSH_KEYS_TOO_MANY, why)
    return None


async def every(world: World, organization_id: OrganizationId, *, reach: Reach) -> Sequence[SshKey]:
    async with world.db.reading(organization_id) as connection:
        return await ssh_keys.every(connection, organization_id, reach)


async def delete(
    world: World, organization_id: OrganizationId, key_id: UUID, *, reach: Reach
) -> Refused | None:
    """Delete a key. Its certificates are revoked, also at leases that were created for it."""
    async with world.db.transaction(organization_id) as connection:
        if await ssh_keys.delete(connection, organization_id, key_id, reach, now=world.now()):
            return None
        return Refused(RefusalCode.NOT_FOUND, "There is no such SSH key.")
