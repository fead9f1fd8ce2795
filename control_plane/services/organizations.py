"""Organizations, their API keys and SSH keys."""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import organizations
from control_plane.db.organizations import ApiKey, Organization, Owner, SshKey
from control_plane.domain.ids import ApiKeyId, OrganizationId, SshKeyId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = [  # Controllers name these rows, and do not import the layer below.
    "ApiKey",
    "IssuedKey",
    "Organization",
    "Owner",
    "SshKey",
]

KEY_PREFIX = "spk_"
GPU_QUOTA_DEFAULT = 64
SSH_KEY_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new API key. The secret leaves here once and is stored only as a digest."""

    key: ApiKey
    secret: str


def digest(secret: str) -> bytes:
    """What is stored of a key. The secret has 256 bits of chance, so a plain hash cannot be guessed back."""
    return hashlib.sha256(secret.encode()).digest()


async def create(
    connection: AsyncConnection,
    world: World,
    organization_id: OrganizationId,
    name: str,
    *,
    gpu_quota: int = GPU_QUOTA_DEFAULT,
) -> Refused | None:
    """Make an organization under an id chosen by the caller (the tenant of this transaction)."""
    if await organizations.insert(connection, organization_id, name, gpu_quota=gpu_quota, now=world.now()):
        return None
    return Refused(RefusalCode.NAME_TAKEN, f"There is an organization called {name!r} already.")


async def show(world: World, organization_id: OrganizationId) -> Organization:
    async with world.db.reading(organization_id) as connection:
        found = await organizations.get(connection, organization_id)
    if found is None:
        raise LookupError(f"organization {organization_id} does not exist")
    return found


async def issue_api_key(
    connection: AsyncConnection, world: World, organization_id: OrganizationId, *, name: str, operator: bool
) -> IssuedKey:
    secret = KEY_PREFIX + base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    key = ApiKey(
        id=ApiKeyId(world.new_id()),
        name=name,
        operator=operator,
        hint=f"{secret[:8]}...{secret[-4:]}",
        created_at=world.now(),
        revoked_at=None,
    )
    await organizations.insert_api_key(
        connection,
        key.id,
        organization_id,
        name=name,
        operator=operator,
        secret_sha256=digest(secret),
        hint=key.hint,
        now=key.created_at,
    )
    return IssuedKey(key, secret)


async def owner_of(world: World, secret: str) -> Owner | None:
    """Whose key this is; None for an unknown or revoked one."""
    async with world.db.reading() as connection:
        return await organizations.owner(connection, digest(secret))


async def api_keys(world: World, organization_id: OrganizationId) -> Sequence[ApiKey]:
    async with world.db.reading(organization_id) as connection:
        return await organizations.api_keys(connection, organization_id)


async def revoke_api_key(
    world: World, organization_id: OrganizationId, key_id: UUID, *, using: ApiKeyId
) -> Refused | None:
    """Revoke a key. The key that asks cannot revoke itself: that would lock the organization out unseen."""
    if key_id == using:
        return Refused(
            RefusalCode.KEY_IN_USE, "This request uses the key it would revoke; revoke it with another key."
        )
    async with world.db.transaction(organization_id) as connection:
        if await organizations.revoke_api_key(connection, organization_id, key_id, now=world.now()):
            return None
        return Refused(RefusalCode.NOT_FOUND, "There is no such API key, or it is revoked already.")


def parse_ssh_key(text: str) -> tuple[str, str] | Refused:
    """The key without its comment, and its SHA256 fingerprint as OpenSSH prints it."""
    parts = text.strip().split()
    if len(text) > 16_384 or len(parts) < 2 or "\n" in text.strip() or parts[0] not in SSH_KEY_TYPES:
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


async def add_ssh_key(
    connection: AsyncConnection, world: World, organization_id: OrganizationId, *, name: str, public_key: str
) -> SshKey | Refused:
    parsed = parse_ssh_key(public_key)
    if isinstance(parsed, Refused):
        return parsed
    line, fingerprint = parsed
    key = SshKey(SshKeyId(world.new_id()), name, line, fingerprint, world.now())
    if not await organizations.insert_ssh_key(connection, organization_id, key):
        return Refused(RefusalCode.NAME_TAKEN, f"There is an SSH key called {name!r} already.")
    return key


async def ssh_keys(world: World, organization_id: OrganizationId) -> Sequence[SshKey]:
    async with world.db.reading(organization_id) as connection:
        return await organizations.ssh_keys(connection, organization_id)


async def delete_ssh_key(world: World, organization_id: OrganizationId, key_id: UUID) -> Refused | None:
    """Forget a key. Leases that were created with it keep it until they end."""
    async with world.db.transaction(organization_id) as connection:
        if await organizations.delete_ssh_key(connection, organization_id, key_id):
            return None
        return Refused(RefusalCode.NOT_FOUND, "There is no such SSH key.")
