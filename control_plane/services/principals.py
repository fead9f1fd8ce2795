"""Who asks: the subject behind an API key, with what it may do."""

import hashlib
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from control_plane.db import organizations, principals
from control_plane.db.connection import Connection
from control_plane.db.principals import KeyOwner
from control_plane.domain.access import Principal, confined
from control_plane.domain.api_key import narrowing
from control_plane.domain.ids import ApiKeyId, OrganizationId, Prefix, on_wire
from control_plane.world import World

USES_APART_SECONDS = 60.0
"""The last use of a key is stored at most this often."""


def digest(secret: str) -> bytes:
    """The digest that is stored of a key. The secret has 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


async def of_secret(world: World, secret: str) -> Principal | None:
    """Whose key this is; None when it is unknown, revoked or expired, or its owner is suspended."""
    async with world.db.reading() as connection:
        owner = await principals.of_secret(connection, digest(secret), now=world.now())
    return None if owner is None else _principal(owner)


async def of_keys(world: World, key_ids: Collection[ApiKeyId]) -> Mapping[ApiKeyId, Principal]:
    """What those of these keys and sessions, of any organization, that are valid may do now."""
    async with world.db.reading() as connection:
        owners = await principals.of_keys(connection, key_ids, now=world.now())
    return {owner.api_key_id: _principal(owner) for owner in owners}


async def hold(connection: Connection, world: World, principal: Principal) -> Principal | None:
    """What the principal may do now. Until the transaction is over its key is not revoked and it is not suspended.

    None when either has happened. For requests that give somebody access, so that nothing remains which a revoked key
    made, and nobody passes on what was taken from them.
    """
    await principals.hold(connection, ApiKeyId(principal.credential_id), principal.subject)
    owners = await principals.of_keys(connection, [ApiKeyId(principal.credential_id)], now=world.now())
    return confined(_principal(owners[0]), principal.confined_to) if owners else None


async def hold_open(connection: Connection, principal: Principal) -> bool:
    """Keep the principal's organization open until the transaction is over. False when it is closed already."""
    return await organizations.hold_open(connection, principal.organization_id)


def transaction(world: World, principal: Principal) -> AbstractAsyncContextManager[Connection]:
    """One transaction for the principal's organization."""
    return world.db.transaction(principal.organization_id)


async def note_uses(world: World, organization_id: OrganizationId, uses: Mapping[ApiKeyId, datetime]) -> int:
    """Store when keys of an organization were last used. Returns for how many it was not known."""
    async with world.db.transaction(organization_id) as connection:
        return await principals.note_uses(connection, organization_id, uses, apart_seconds=USES_APART_SECONDS)


def _principal(owner: KeyOwner) -> Principal:
    return Principal(
        organization_id=owner.organization_id,
        platform=owner.platform,
        organization_state=owner.organization_state,
        subject=owner.subject,
        credential_id=owner.api_key_id,
        credential_name=on_wire(Prefix.SESSION if owner.is_session else Prefix.API_KEY, owner.api_key_id),
        roles=owner.roles,
        narrowing=narrowing(owner.scopes, owner.project_ids),
        expires_at=owner.expires_at,
    )
