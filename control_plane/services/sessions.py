"""Sessions of people: begun by a sign-in, kept alive by refresh tokens, listed and ended."""

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from control_plane.db import sessions
from control_plane.db.connection import Connection
from control_plane.db.sessions import NewToken
from control_plane.domain.access import Holder, Principal
from control_plane.domain.audit import Act, Happening, Origin, cleaned
from control_plane.domain.audit import SubjectKind as AuditedKind
from control_plane.domain.ids import ApiKeyId, OrganizationId, Prefix, SessionId, UserId, on_wire
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.session import LASTS, Session, SessionEnd, Use, use
from control_plane.domain.subject import Subject, SubjectKind
from control_plane.services import access_tokens, audit, principals
from control_plane.services.access_tokens import AccessToken
from control_plane.services.signing_in import SigningIn
from control_plane.world import World

__all__ = ["Session"]  # For controllers, which must not import the layer below.

REFRESH_PREFIX = "spr_"
CLIENT_ID = "splitplane-cli"
"""The client id of our command line, the one client of the device flow."""
_SECRET_BYTES = 32
_NOT_FOUND = Refused(RefusalCode.NOT_FOUND, "There is no such session, or it has ended already.")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a terminal gets: an access token, and the refresh token for the next one."""

    access: AccessToken
    refresh: str = field(repr=False)
    session_id: SessionId
    organization_id: OrganizationId


def _new_refresh(organization_id: OrganizationId) -> str:
    """A refresh token. It names its organization, because the database shows tokens of one organization at a time."""
    return f"{REFRESH_PREFIX}{organization_id.hex}_{random_secret()}"


def random_secret() -> str:
    """256 random bits as text."""
    return base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).decode().rstrip("=")


def digest(secret: str) -> bytes:
    """The digest that is stored. The secret has 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


def _organization_of(refresh: str) -> OrganizationId | None:
    """The organization that a refresh token names; None for a text that is none."""
    prefix, _, rest = refresh.partition("_")
    organization, _, secret = rest.partition("_")
    hexadecimal = len(organization) == 32 and set(organization) <= set("0123456789abcdef")
    if f"{prefix}_" != REFRESH_PREFIX or not hexadecimal or not secret or len(refresh) > 200:
        return None
    return OrganizationId(UUID(hex=organization))


async def begin(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    user_id: UserId,
    *,
    client: str,
    address: str,
    origin: Origin,
) -> tuple[SessionId, str]:
    """Begin a session of a user. Returns it with its first refresh token."""
    now, session_id = world.now(), SessionId(world.new_id())
    session = Session(session_id, user_id, client, address, now, now, now + LASTS, None, None)
    await sessions.insert(connection, organization_id, session)
    refresh = _new_refresh(organization_id)
    await sessions.insert_token(connection, organization_id, NewToken(digest(refresh), session_id), now=now)
    begun = _line(organization_id, session, Happening.SESSIONS_BEGIN, "sign_in", origin)
    await audit.record(connection, world, begun, surely=True)
    return session_id, refresh


async def tokens(
    world: World,
    signing_in: SigningIn,
    organization_id: OrganizationId,
    user_id: UserId,
    *,
    session_id: SessionId,
    refresh: str,
) -> Tokens:
    """The tokens of a session whose refresh token was just made."""
    access = await access_tokens.issue(
        world,
        signing_in,
        organization_id=organization_id,
        subject=Subject(SubjectKind.USER, user_id),
        credential=on_wire(Prefix.SESSION, session_id),
        client_id=CLIENT_ID,
    )
    return Tokens(access, refresh, session_id, organization_id)


async def refresh(
    world: World, signing_in: SigningIn, presented: str, *, origin: Origin
) -> Tokens | Holder | None:
    """Exchange a refresh token for new tokens; the holder when it opens nothing any more, None when it never did.

    One that was replaced before ends its session: it has two users, and one of them stole it. Raises KeyManagerError,
    with nothing exchanged: a client that waits until the key manager is back would otherwise look like a thief.
    """
    organization_id = _organization_of(presented)
    if organization_id is None:
        return None
    await signing_in.keys.signer()
    async with world.db.transaction(organization_id) as connection:
        session = await _session_of(connection, organization_id, presented)
        if session is None:
            return None
        name = on_wire(Prefix.SESSION, session.id)
        holder = Holder(organization_id, Subject(SubjectKind.USER, session.user_id), name)
        if not session.is_open(world.now()):
            return holder
        following = await _exchange(connection, world, organization_id, session, presented, origin=origin)
    if following is None:
        return holder
    if not await principals.of_keys(world, [ApiKeyId(session.id)]):
        return holder
    return await tokens(
        world, signing_in, organization_id, session.user_id, session_id=session.id, refresh=following
    )


async def _session_of(
    connection: Connection, organization_id: OrganizationId, presented: str
) -> Session | None:
    """The session of a refresh token, locked."""
    session_id = await sessions.session_of_token(connection, organization_id, digest(presented))
    if session_id is None:
        return None
    return await sessions.get(connection, organization_id, session_id, lock=True)


async def _exchange(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    session: Session,
    presented: str,
    *,
    origin: Origin,
) -> str | None:
    now, old = world.now(), digest(presented)
    found = await sessions.presented(connection, organization_id, old)
    decided = Use.END if found is None else use(found, now)
    if decided is Use.END:
        await _end(connection, world, organization_id, session, SessionEnd.REUSED, origin=origin)
        return None
    following = _new_refresh(organization_id)
    new = NewToken(digest(following), session.id, replaces=old)
    await sessions.insert_token(connection, organization_id, new, now=now)
    await sessions.replaced(connection, organization_id, old, now=now)
    await sessions.used(connection, organization_id, session.id, now=now)
    return following


async def sign_out(world: World, presented: str, *, origin: Origin) -> None:
    """End the session of a refresh token, used or not. A token that opens nothing has no effect (RFC 7009)."""
    organization_id = _organization_of(presented)
    if organization_id is None:
        return
    async with world.db.transaction(organization_id) as connection:
        session = await _session_of(connection, organization_id, presented)
        if session is not None:
            await _end(connection, world, organization_id, session, SessionEnd.SIGNED_OUT, origin=origin)


async def _end(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    session: Session,
    why: SessionEnd,
    *,
    origin: Origin,
) -> None:
    if await sessions.end(connection, organization_id, session.id, why, now=world.now()):
        ended = _line(organization_id, session, Happening.SESSIONS_END, f"session:{why}", origin)
        await audit.record(connection, world, ended, surely=True)


def _line(
    organization_id: OrganizationId, session: Session, event: Happening, rule: str, origin: Origin
) -> Act:
    """A line of the audit log: nobody's request has a principal here."""
    return Act(
        organization_id=organization_id,
        event=event.value,
        subject=on_wire(Prefix.USER, session.user_id),
        subject_kind=AuditedKind.USER,
        credential=on_wire(Prefix.SESSION, session.id),
        address=session.address,
        client=cleaned(session.client),
        region=origin.region,
        rule=rule,
        request_id=origin.request_id,
    )


async def page(
    world: World, principal: Principal, *, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[Session]:
    """The principal's sessions, or all of the organization, with those that have ended, oldest first."""
    of = None
    if not principal.may(Permission.SESSIONS_READ_ALL):
        of = UserId(principal.subject.id)  # A service account has no session, so its id finds none.
    async with world.db.reading(principal.organization_id) as connection:
        return await sessions.page(connection, principal.organization_id, of=of, after=after, limit=limit)


async def revoke(world: World, principal: Principal, session_id: SessionId) -> Refused | None:
    """End a session: one's own, or with the permission anybody's of the organization."""
    organization_id = principal.organization_id
    async with world.db.transaction(organization_id) as connection:
        found = await sessions.get(connection, organization_id, session_id, lock=True)
        if found is None:
            return _NOT_FOUND
        own = found.user_id == principal.subject.id
        if not own and not principal.may(Permission.SESSIONS_REVOKE_ALL):
            return _NOT_FOUND
        now = world.now()
        if await sessions.end(connection, organization_id, session_id, SessionEnd.REVOKED, now=now):
            return None
        return _NOT_FOUND
