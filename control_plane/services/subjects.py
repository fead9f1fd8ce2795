"""What is the same for users and service accounts: their states, their names, and what they may do."""

from collections.abc import Sequence

from control_plane.db import (
    api_keys,
    issued,
    organizations,
    role_bindings,
    service_accounts,
    sessions,
    users,
)
from control_plane.db.connection import Connection
from control_plane.domain.access import Grant, HeldRole, Principal, grants_of
from control_plane.domain.ids import (
    MalformedIdError,
    OrganizationId,
    Prefix,
    ServiceAccountId,
    UserId,
    off_wire,
)
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.role import Role
from control_plane.domain.scope import ORGANIZATION
from control_plane.domain.service_account import ServiceAccount
from control_plane.domain.session import SessionEnd
from control_plane.domain.subject import Subject, SubjectEvent, SubjectKind, SubjectState, step
from control_plane.domain.transitions import Ignored
from control_plane.domain.user import User
from control_plane.world import World

_ENDS = frozenset({SubjectEvent.SUSPENDED, SubjectEvent.REMOVED})


def read_subject(text: str) -> Subject | None:
    """A subject by its id on the wire: `user_...` or `sa_...`."""
    try:
        if text.startswith(f"{Prefix.USER}_"):
            return Subject(SubjectKind.USER, UserId(off_wire(Prefix.USER, text)))
        return Subject(SubjectKind.SERVICE_ACCOUNT, ServiceAccountId(off_wire(Prefix.SERVICE_ACCOUNT, text)))
    except MalformedIdError:
        return None


async def find(
    connection: Connection, organization_id: OrganizationId, subject: Subject, *, lock: bool = False
) -> User | ServiceAccount | None:
    """A user or a service account of the organization; None when there is none, or it is removed."""
    found: User | ServiceAccount | None
    if subject.kind is SubjectKind.USER:
        found = await users.get(connection, organization_id, UserId(subject.id), lock=lock)
    else:
        found = await service_accounts.get(
            connection, organization_id, ServiceAccountId(subject.id), lock=lock
        )
    return None if found is None or found.state is SubjectState.REMOVED else found


async def roles_of(
    connection: Connection, organization_id: OrganizationId, subject: Subject
) -> Sequence[HeldRole]:
    return await role_bindings.of_subject(connection, organization_id, subject)


async def grants_to(connection: Connection, principal: Principal, subject: Subject) -> tuple[Grant, ...]:
    """What another subject of the principal's organization may do."""
    roles = await roles_of(connection, principal.organization_id, subject)
    return grants_of(roles, platform=principal.platform)


def beyond(principal: Principal, grants: Sequence[Grant], what: str) -> Refused | None:
    """A refusal when these grants allow more than the principal may do."""
    missing = principal.missing(grants)
    if missing is None:
        return None
    why = f"{what} includes the permission `{missing}`, which you do not have there."
    return Refused(RefusalCode.BEYOND_YOUR_ROLES, why)


async def leaves_no_owner(
    connection: Connection, organization_id: OrganizationId, subject: Subject, roles: Sequence[HeldRole]
) -> Refused | None:
    """A refusal when the organization would be without an owner once this one is gone."""
    if not any(held.role is Role.OWNER and held.scope == ORGANIZATION for held in roles):
        return None
    # One change at a time, so that two owners cannot remove each other.
    await organizations.standing(connection, organization_id, lock=True)
    if await role_bindings.other_owners(connection, organization_id, subject):
        return None
    why = "An organization has at least one owner who can act; appoint another one first."
    return Refused(RefusalCode.LAST_OWNER, why)


async def change(
    connection: Connection, world: World, principal: Principal, subject: Subject, event: SubjectEvent
) -> Refused | None:
    """Suspend, resume or remove a user or a service account of the principal's organization.

    Once more has no effect. Nobody does it to themselves, or to somebody who may do more.
    """
    organization_id = principal.organization_id
    found = await find(connection, organization_id, subject, lock=True)
    if found is None:
        return Refused(RefusalCode.NOT_FOUND, "There is nobody with this id, or it is removed.")
    if subject == principal.subject:
        return Refused(
            RefusalCode.NOT_YOURSELF, "Nobody suspends, resumes or removes themselves; ask somebody else."
        )
    roles = await roles_of(connection, organization_id, subject)
    refused = beyond(principal, grants_of(roles, platform=principal.platform), f"What {found.name!r} may do")
    if refused is None and event in _ENDS:
        refused = await leaves_no_owner(connection, organization_id, subject, roles)
    if refused is not None:
        return refused
    return await _move(connection, world, organization_id, found, event)


async def _move(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    found: User | ServiceAccount,
    event: SubjectEvent,
) -> Refused | None:
    moved = step(found.state, event)
    if isinstance(moved, Ignored):
        if _is_done(found.state, event):
            return None
        why = f"{found.name!r} is {found.state}, so it cannot be {event}."
        return Refused(RefusalCode.STATE_CONFLICT, why)
    if isinstance(found, User):
        await users.move(connection, organization_id, found.id, before=moved.before, after=moved.after)
    else:
        await service_accounts.move(
            connection, organization_id, found.id, before=moved.before, after=moved.after
        )
    if isinstance(found, User) and event in _ENDS:
        await sessions.end_all_of(
            connection, organization_id, found.id, SessionEnd.USER_ENDED, now=world.now()
        )
    if event in _ENDS:
        await issued.revoke_of_subject(connection, organization_id, found.subject, now=world.now())
    if event is SubjectEvent.REMOVED:
        await api_keys.revoke_all_of(connection, organization_id, found.subject, now=world.now())
        await role_bindings.delete_all_of(connection, organization_id, found.subject)
    return None


def _is_done(state: SubjectState, event: SubjectEvent) -> bool:
    """Whether the event would lead where the subject already is."""
    if event is SubjectEvent.RESUMED:
        return state in {SubjectState.ACTIVE, SubjectState.INVITED}
    return event is SubjectEvent.SUSPENDED and state is SubjectState.SUSPENDED
