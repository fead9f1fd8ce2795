"""SSH public keys that give access to an organization's machines."""

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

__all__ = ["SshKey"]  # For controllers, which must not import the layer below.

TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_LENGTH_MAX = 16_384
_BLOB_BYTES_MIN = 32


def parse(text: str) -> tuple[str, str] | Refused:
    """The key without its comment, and its SHA256 fingerprint as OpenSSH prints it."""
    parts = text.strip().split()
    if len(text) > _LENGTH_MAX or len(parts) < 2 or "\n" in text.strip() or parts[0] not in TYPES:
        return Refused(
            RefusalCode.SSH_KEY_INVALID,
            "Not an OpenSSH public key; paste one line such as 'ssh-ed25519 AAAA... you@host'.",
        )
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except ValueError:  # Both binascii.Error and the error for text beyond ASCII are ValueErrors.
        return Refused(RefusalCode.SSH_KEY_INVALID, "The key's second word is not valid base64.")
    if not _holds(blob, parts[0].encode()):
        return Refused(
            RefusalCode.SSH_KEY_INVALID, f"The key's data is not of the type {parts[0]} that it is given as."
        )
    fingerprint = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"{parts[0]} {parts[1]}", f"SHA256:{fingerprint}"


def _holds(blob: bytes, kind: bytes) -> bool:
    """Whether the key's data begins with its type, as RFC 4253 section 6.6 demands."""
    return len(blob) >= _BLOB_BYTES_MIN and blob.startswith(len(kind).to_bytes(4, "big") + kind)


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
    async with world.db.reading(organization_id) as connection:
        return await ssh_keys.every(connection, organization_id)


async def delete(world: World, organization_id: OrganizationId, key_id: UUID) -> Refused | None:
    """Delete a key. Leases that were created with it keep it until they end."""
    async with world.db.transaction(organization_id) as connection:
        if await ssh_keys.delete(connection, organization_id, key_id):
            return None
        return Refused(RefusalCode.NOT_FOUND, "There is no such SSH key.")
