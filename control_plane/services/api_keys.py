"""API keys: issue, list and revoke them, and find whose key a secret is."""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import organizations as rows
from control_plane.domain.ids import ApiKeyId, OrganizationId
from control_plane.domain.permission import Role
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World

KEY_PREFIX = "spk_"
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: ApiKeyId
    name: str
    role: Role
    hint: str
    """The first and last characters of the secret."""
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new API key. The secret is returned once and stored only as a digest."""

    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True)
class Owner:
    """The organization that an API key belongs to, and the key's role."""

    organization_id: OrganizationId
    api_key_id: ApiKeyId
    role: Role


def digest(secret: str) -> bytes:
    """What is stored of a key. The secret has 256 random bits, so that a plain hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


async def issue(
    connection: AsyncConnection, world: World, organization_id: OrganizationId, *, name: str, role: Role
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
    await rows.insert_api_key(
        connection,
        key.id,
        organization_id,
        name=name,
        operator=role is Role.OPERATOR,
        secret_sha256=digest(secret),
        hint=key.hint,
        now=key.created_at,
    )
    return IssuedKey(key, secret)


def _role(*, operator: bool) -> Role:
    """The role of a key as its row has it. This module is the only one that knows the column."""
    return Role.OPERATOR if operator else Role.CUSTOMER


async def owner_of(world: World, secret: str) -> Owner | None:
    """The owner of a key; None when the key is unknown or revoked."""
    async with world.db.reading() as connection:
        found = await rows.owner(connection, digest(secret))
    if found is None:
        return None
    return Owner(found.organization_id, found.api_key_id, _role(operator=found.operator))


async def every(world: World, organization_id: OrganizationId) -> Sequence[ApiKey]:
    """The keys of an organization, revoked ones included, oldest first."""
    async with world.db.reading(organization_id) as connection:
        found = await rows.api_keys(connection, organization_id)
    return [
        ApiKey(key.id, key.name, _role(operator=key.operator), key.hint, key.created_at, key.revoked_at)
        for key in found
    ]


async def revoke(
    world: World, organization_id: OrganizationId, key_id: UUID, *, using: ApiKeyId
) -> Refused | None:
    """Revoke a key. `using` is the key of this request, which is refused: it would lock its owner out."""
    if key_id == using:
        return Refused(
            RefusalCode.KEY_IN_USE, "This request uses the key it would revoke; revoke it with another key."
        )
    async with world.db.transaction(organization_id) as connection:
        if await rows.revoke_api_key(connection, organization_id, key_id, now=world.now()):
            return None
        return Refused(RefusalCode.NOT_FOUND, "There is no such API key, or it is revoked already.")
