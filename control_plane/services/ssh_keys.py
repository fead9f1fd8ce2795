"""SSH keys: which keys open the machines of an organization's leases."""

import base64
import hashlib
from collections.abc import Sequence
from uuid import UUID

from control_plane.db import ssh_keys
from control_plane.db.connection import Connection
from control_plane.db.ssh_keys import SshKey
from control_plane.domain.ids import OrganizationId, SshKeyId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = ["SshKey"]  # Controllers name this row, and do not import the layer below.

KEY_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


def parse(text: str) -> tuple[str, str] | Refused:
    """The key without its comment, and its SHA256 fingerprint as OpenSSH prints it."""
    parts = text.strip().split()
    if len(text) > 16_384 or len(parts) < 2 or "\n" in text.strip() or parts[0] not in KEY_TYPES:
        return Refused(
            RefusalCode.SSH_KEY_INVALID,
            "Not an OpenSSH public key; paste one line such as 'ssh-ed25519 AAAA... you@host'.",
        )
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except ValueError:  # binascii.Error is one; so is text beyond ASCII.
        return Refused(RefusalCode.SSH_KEY_INVALID, "The key's second word is not valid base64.")
    kind = parts[0].encode()
    if len(blob) < 32 or blob[:4] != len(kind).to_bytes(4, "big") or blob[4 : 4 + len(kind)] != kind:
        return Refused(
            RefusalCode.SSH_KEY_INVALID, f"The key does not hold what its first word, {parts[0]}, promises."
        )
    fingerprint = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"{parts[0]} {parts[1]}", f"SHA256:{fingerprint}"


async def add(
    connection: Connection, world: World, organization_id: OrganizationId, *, name: str, public_key: str
) -> SshKey | Refused:
    parsed = parse(public_key)
    if isinstance(parsed, Refused):
        return parsed
    line, fingerprint = parsed
    key = SshKey(SshKeyId(world.new_id()), name, line, fingerprint, world.now())
    if not await ssh_keys.insert(connection, organization_id, key):
        return Refused(RefusalCode.NAME_TAKEN, f"There is an SSH key called {name!r} already.")
    return key


async def every(world: World, organization_id: OrganizationId) -> Sequence[SshKey]:
    """All keys of the organization, oldest first."""
    async with world.db.reading(organization_id) as connection:
        return await ssh_keys.every(connection, organization_id)


async def delete(world: World, organization_id: OrganizationId, key_id: UUID) -> Refused | None:
    """Forget a key. Leases that were created with it keep it until they end."""
    async with world.db.transaction(organization_id) as connection:
        if await ssh_keys.delete(connection, organization_id, key_id):
            return None
        return Refused(RefusalCode.NOT_FOUND, "There is no such SSH key.")
