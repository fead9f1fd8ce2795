"""API keys: issue, rotate, list and revoke them."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from control_plane.db import api_keys, organizations
from control_plane.db.connection import Connection
from control_plane.domain.access import EVERYWHERE, Principal, grants_of
from control_plane.domain.api_key import ApiKey, narrowing
from control_plane.domain.ids import ApiKeyId, OrganizationId, ProjectId
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.subject import Subject
from control_plane.services import projects, subjects
from control_plane.services.principals import digest
from control_plane.world import World

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


@dataclass(frozen=True, slots=True)
class WantedKey:
    """What a request says of a new key."""

    name: str
    scopes: tuple[str, ...] | None = None
    projects: tuple[str, ...] | None = None
    """Names or ids."""
    expires_at: datetime | None = None


async def issue(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    subject: Subject,
    *,
    name: str,
    scopes: tuple[str, ...] | None = None,
    project_ids: tuple[ProjectId, ...] | None = None,
    expires_at: datetime | None = None,
    rotates: ApiKeyId | None = None,
) -> IssuedKey:
    """Make a key for a subject of the organization."""
    secret = KEY_PREFIX + base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).decode().rstrip("=")
    key = ApiKey(
        id=ApiKeyId(world.new_id()),
        subject=subject,
        name=name,
        hint=f"{secret[:8]}...{secret[-4:]}",
        scopes=scopes,
        project_ids=project_ids,
        rotates=rotates,
        created_at=world.now(),
        expires_at=expires_at,
        revoked_at=None,
        last_used_at=None,
    )
    await api_keys.insert(connection, organization_id, key, secret_sha256=digest(secret))
    return IssuedKey(key, secret)


async def create(
    connection: Connection, world: World, principal: Principal, subject: Subject, wanted: WantedKey
) -> IssuedKey | Refused:
    """One more key, for oneself or for somebody who may do no more, unless there are as many as there may be.

    It can never do more than the credential with which it is made.
    """
    organization_id = principal.organization_id
    if subject != principal.subject:
        found = None
        if principal.may(Permission.API_KEYS_MANAGE):
            found = await subjects.find(connection, organization_id, subject)
        if found is None:
            why = f"There is no {subject.kind.replace('_', ' ')} {subject.on_wire} for which you may create keys."
            return Refused(RefusalCode.SUBJECT_UNKNOWN, why)
    if wanted.expires_at is not None and wanted.expires_at <= world.now():
        return Refused(RefusalCode.EXPIRY_INVALID, "`expires_at` is over; choose a time that is to come.")
    project_ids = await _project_ids(connection, organization_id, wanted.projects)
    if isinstance(project_ids, Refused):
        return project_ids
    key = _Unissued(subject, wanted.name, wanted.scopes, project_ids, wanted.expires_at)
    return await _checked(connection, world, principal, key)


@dataclass(frozen=True, slots=True)
class _Unissued:
    subject: Subject
    name: str
    scopes: tuple[str, ...] | None
    project_ids: tuple[ProjectId, ...] | None
    expires_at: datetime | None
    rotates: ApiKeyId | None = None


async def _checked(
    connection: Connection, world: World, principal: Principal, key: _Unissued
) -> IssuedKey | Refused:
    """Issue a key that can do no more than the principal."""
    organization_id = principal.organization_id
    roles = await subjects.roles_of(connection, organization_id, key.subject)
    limits = narrowing(key.scopes, key.project_ids)
    refused = subjects.beyond(
        principal, grants_of(roles, limits, platform=principal.platform), "What the new key could do"
    )
    if refused is not None:
        return refused
    # One at a time, so that the bound holds.
    await organizations.standing(connection, organization_id, lock=True)
    if await api_keys.count(connection, organization_id, now=world.now()) >= KEYS_MAX:
        why = f"An organization has at most {KEYS_MAX} valid API keys; revoke one that is no longer used."
        return Refused(RefusalCode.API_KEYS_TOO_MANY, why)
    return await issue(
        connection,
        world,
        organization_id,
        key.subject,
        name=key.name,
        scopes=key.scopes,
        project_ids=key.project_ids,
        expires_at=key.expires_at,
        rotates=key.rotates,
    )


async def _project_ids(
    connection: Connection, organization_id: OrganizationId, words: tuple[str, ...] | None
) -> tuple[ProjectId, ...] | Refused | None:
    if words is None:
        return None
    found = []
    for word in words:
        project = await projects.named(connection, organization_id, word, reach=EVERYWHERE)
        if isinstance(project, Refused):
            return project
        found.append(project.id)
    return tuple(sorted(set(found)))


async def rotate(
    connection: Connection, world: World, principal: Principal, key_id: UUID, *, overlap: timedelta
) -> IssuedKey | Refused:
    """Replace a key by one with the same owner, limits and end. The old one ends after the overlap."""
    old = await _visible(connection, principal, key_id)
    if isinstance(old, Refused):
        return old
    if not old.is_valid(world.now()):
        return _NOT_FOUND
    key = _Unissued(old.subject, old.name, old.scopes, old.project_ids, old.expires_at, rotates=old.id)
    issued = await _checked(connection, world, principal, key)
    if isinstance(issued, IssuedKey):
        now = world.now()
        end = old.end_of_overlap(now, overlap)
        await api_keys.expire(connection, principal.organization_id, old.id, at=end, now=now)
    return issued


async def _visible(connection: Connection, principal: Principal, key_id: UUID) -> ApiKey | Refused:
    """A key that the principal may handle: its own, or with the permission any."""
    found = await api_keys.lock(connection, principal.organization_id, key_id)
    if found is None:
        return _NOT_FOUND
    if found.subject != principal.subject and not principal.may(Permission.API_KEYS_MANAGE):
        return _NOT_FOUND
    return found


async def page(
    world: World, principal: Principal, *, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[ApiKey]:
    """The principal's keys, or all of the organization, with those that have ended, oldest first."""
    of = None if principal.may(Permission.API_KEYS_READ_ALL) else principal.subject
    async with world.db.reading(principal.organization_id) as connection:
        return await api_keys.page(connection, principal.organization_id, of=of, after=after, limit=limit)


async def revoke(world: World, principal: Principal, key_id: UUID) -> Refused | None:
    """Revoke a key. Refuses to revoke the key of this request, because that could lock its owner out."""
    if key_id == principal.credential_id:
        return Refused(
            RefusalCode.KEY_IN_USE, "This request uses the key it would revoke; revoke it with another key."
        )
    organization_id = principal.organization_id
    async with world.db.transaction(organization_id) as connection:
        found = await _visible(connection, principal, key_id)
        if isinstance(found, Refused):
            return found
        if found.subject != principal.subject:
            grants = await subjects.grants_to(connection, principal, found.subject)
            refused = subjects.beyond(principal, grants, "What the owner of the key may do")
            if refused is not None:
                return refused
        if await api_keys.revoke(connection, organization_id, key_id, now=world.now()):
            return None
        return _NOT_FOUND
