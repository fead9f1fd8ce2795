"""Users: the people of an organization."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import users
from control_plane.db.connection import Connection
from control_plane.domain.ids import OrganizationId, UserId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.subject import SubjectState
from control_plane.domain.user import User
from control_plane.world import World

_NOT_FOUND = Refused(RefusalCode.NOT_FOUND, "There is no such user; GET /v1/users lists yours.")


async def invite(
    connection: Connection, world: World, organization_id: OrganizationId, *, email: str, name: str
) -> User | Refused:
    """Add a user, who has no role yet."""
    user = User(UserId(world.new_id()), email, name, SubjectState.INVITED, world.now())
    if await users.insert(connection, organization_id, user):
        return user
    return Refused(RefusalCode.NAME_TAKEN, f"There is a user with the email address {email!r} already.")


async def page(
    world: World, organization_id: OrganizationId, *, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[User]:
    async with world.db.reading(organization_id) as connection:
        return await users.page(connection, organization_id, after=after, limit=limit)


async def show(connection: Connection, organization_id: OrganizationId, user_id: UserId) -> User | Refused:
    """One user that is not removed."""
    found = await users.get(connection, organization_id, user_id)
    return _NOT_FOUND if found is None or found.state is SubjectState.REMOVED else found


async def get(world: World, organization_id: OrganizationId, user_id: UserId) -> User | Refused:
    async with world.db.reading(organization_id) as connection:
        return await show(connection, organization_id, user_id)
