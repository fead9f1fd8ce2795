"""API keys: issue, list and revoke them, and find the owner of a secret."""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from control_plane.db import api_keys
from control_plane.db.api_keys import ApiKey, Owner
from control_plane.db.connection import Connection
from control_plane.domain.ids import ApiKeyId, OrganizationId
from control_plane.domain.permission import Role
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

__all__ = ["ApiKey", "IssuedKey", "Owner"]  # For controllers, which must not import the layer below.

KEY_PREFIX = "spk_"
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new API key. The secret is returned once and stored only as a digest."""

    key: ApiKey
    secret: str


def digest(secret: str) -> bytes:
    """The digest that is stored of a key. The secret has 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


async def issue(
    connection: Connection, world: World, organization_id: OrganizationId, *, name: str, role: Role
) -> IssuedKey:
    secret = KEY_PREFIX + base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).decode().rstrip("=")
    key = ApiKey(
        id=ApiKeyId(world.new_id()),
        name=name,
        role=role,
        hint=f"{secret[:8]}...{secret[-4:]}",
        created_at=world.now(),
        revoked_at=None,
    )
    await api_keys.insert(connection, organization_id, key, secret_sha256=digest(secret))
    return IssuedKey(key, secret)


async def owner_of(world: World, secret: str) -> Owner | None:
    """The owner of a key; None when the key is unknown or revoked."""
    async with world.db.reading() as connection:
        return await api_keys.owner(connection, digest(secret))


async def every(world: World, organization_id: OrganizationId) -> Sequence[ApiKey]:
    """The keys of an organization, revoked ones included, oldest first."""
    async with world.db.reading(organization_id) as connection:
        return await api_keys.every(connection, organization_id)


async def revoke(
    world: World, organization_id: OrganizationId, key_id: UUID, *, using: ApiKeyId
) -> Refused | None:
    """Revoke a key. Refuses to revoke `using`, the key of this request, because that could lock its owner out."""
    if key_id == using:
        return Refused(
            RefusalCode.KEY_IN_USE, "This request uses the key it would revoke; revoke it with another key."
        )
    async with world.db.transaction(organization_id) as connection:
        if await api_keys.revoke(connection, organization_id, key_id, now=world.now()):
            return None
        return Refused(RefusalCode.NOT_FOUND, "There is no such API key, or it is revoked already.")
