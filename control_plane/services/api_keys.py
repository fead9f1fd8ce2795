"""API keys: issue, list and revoke them, and find the owner of a secret."""

import base64
import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from control_plane.db import api_keys, organizations
from control_plane.db.api_keys import ApiKey, Owner
from control_plane.db.connection import Connection
from control_plane.domain.ids import ApiKeyId, OrganizationId
from control_plane.domain.permission import Role
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.subject import Subject
from control_plane.world import World

__all__ = ["ApiKey", "IssuedKey", "Owner"]  # For controllers, which must not import the layer below.

KEY_PREFIX = "spk_"
KEYS_MAX = 100
"""Valid keys of an organization."""
_SECRET_BYTES = 32
_NOT_FOUND = Refused(RefusalCode.NOT_FOUND, "There is no such API key, or it is revoked already.")


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new API key. The secret is returned once and stored only as a digest."""

    key: ApiKey
    secret: str


def digest(secret: str) -> bytes:
    """The digest that is stored of a key. The secret has 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


async def issue(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    subject: Subject,
    *,
    name: str,
    role: Role,
) -> IssuedKey:
    """Make a key for a subject of the organization."""
    secret = KEY_PREFIX + base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).decode().rstrip("=")
    key = ApiKey(
        id=ApiKeyId(world.new_id()),
        name=name,
        role=role,
        hint=f"{secret[:8]}...{secret[-4:]}",
        created_at=world.now(),
        revoked_at=None,
    )
    await api_keys.insert(connection, organization_id, subject, key, secret_sha256=digest(secret))
    return IssuedKey(key, secret)


async def create(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    subject: Subject,
    *,
    name: str,
    role: Role,
) -> IssuedKey | Refused:
    """One more key for an organization, unless it has as many as it may have."""
    # One at a time, so that the bound holds.
    await organizations.standing(connection, organization_id, lock=True)
    if await api_keys.count(connection, organization_id) >= KEYS_MAX:
        why = f"An organization has at most {KEYS_MAX} valid API keys; revoke one that is no longer used."
        return Refused(RefusalCode.API_KEYS_TOO_MANY, why)
    return await issue(connection, world, organization_id, subject, name=name, role=role)


async def owner_of(world: World, secret: str) -> Owner | None:
    """The owner of a key; None when the key is unknown or revoked."""
    async with world.db.reading() as connection:
        return await api_keys.owner(connection, digest(secret))


async def page(
    world: World, organization_id: OrganizationId, *, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[ApiKey]:
    """The keys of an organization, revoked ones included, oldest first, behind creation time and id of `after`."""
    async with world.db.reading(organization_id) as connection:
        return await api_keys.page(connection, organization_id, after=after, limit=limit)


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
        return _NOT_FOUND


async def role(world: World, organization_id: OrganizationId, key_id: UUID) -> Role | Refused:
    async with world.db.reading(organization_id) as connection:
        found = await api_keys.role(connection, organization_id, key_id)
    return found or _NOT_FOUND


async def hold(connection: Connection, key_id: ApiKeyId) -> bool:
    """Keep the key of this request from being revoked until its transaction is over; False when it is revoked.

    For requests that give somebody access, so that nothing which a revoked key made remains.
    """
    return await api_keys.hold(connection, key_id)


async def revoked_among(world: World, key_ids: Collection[ApiKeyId]) -> frozenset[ApiKeyId]:
    """Those of these keys, of any organization, that are revoked."""
    async with world.db.reading() as connection:
        return await api_keys.revoked_among(connection, key_ids)
