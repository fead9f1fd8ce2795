"""SSH public keys that give access to an organization's machines."""

from collections.abc import Sequence
from uuid import UUID

from control_plane.db import organizations, ssh_keys
from control_plane.db.connection import Connection
from control_plane.db.ssh_keys import SshKey
from control_plane.domain.ids import OrganizationId, SshKeyId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.ssh_public_key import InvalidSshKeyError, parse
from control_plane.world import World

__all__ = ["SshKey"]  # For controllers, which must not import the layer below.

KEYS_MAX = 100
"""SSH keys of one organization. A lease that names none admits all of them, and a machine takes 1,000."""


async def add(
    connection: Connection, world: World, organization_id: OrganizationId, *, name: str, public_key: str
) -> SshKey | Refused:
    """Store a key. Neither its name nor the key itself may be stored already."""
    try:
        parsed = parse(public_key)
    except InvalidSshKeyError as error:
        return Refused(RefusalCode.SSH_KEY_INVALID, str(error))
    await organizations.standing(
        connection, organization_id, lock=True
    )  # One at a time, so that the bound holds.
    known = await ssh_keys.every(connection, organization_id)
    refused = _refusal(known, name, parsed.fingerprint)
    if refused is not None:
        return refused
    key = SshKey(SshKeyId(world.new_id()), name, parsed.line, parsed.fingerprint, world.now())
    await ssh_keys.insert(connection, organization_id, key)
    return key


def _refusal(known: Sequence[SshKey], name: str, fingerprint: str) -> Refused | None:
    for key in known:
        if key.name == name:
            return Refused(RefusalCode.NAME_TAKEN, f"There is an SSH key called {name!r} already.")
        if key.fingerprint == fingerprint:
            why = f"This key is stored already, as {key.name!r}."
            return Refused(RefusalCode.SSH_KEY_DUPLICATE, why)
    if len(known) >= KEYS_MAX:
        why = f"An organization has at most {KEYS_MAX} SSH keys; delete one that is no longer used."
        return Refused(RefusalCode.SSH_KEYS_TOO_MANY, why)
    return None


async def every(world: World, organization_id: OrganizationId) -> Sequence[SshKey]:
    async with world.db.reading(organization_id) as connection:
        return await ssh_keys.every(connection, organization_id)


async def delete(world: World, organization_id: OrganizationId, key_id: UUID) -> Refused | None:
    """Delete a key. Leases that were created with it keep it until they end."""
    async with world.db.transaction(organization_id) as connection:
        if await ssh_keys.delete(connection, organization_id, key_id):
            return None
        return Refused(RefusalCode.NOT_FOUND, "There is no such SSH key.")
