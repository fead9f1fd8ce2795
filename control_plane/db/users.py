"""Queries on users."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import OrganizationId, UserId
from control_plane.domain.subject import SubjectState
from control_plane.domain.user import User

_COLUMNS = "id, email, name, state, created_at"
_INSERT = text(f"""
INSERT INTO users (id, organization_id, email, name, state, created_at)
VALUES (:id, :organization_id, :email, :name, '{SubjectState.INVITED}', :now)
ON CONFLICT (organization_id, lower(email)) WHERE state <> '{SubjectState.REMOVED}' DO NOTHING
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM users
WHERE organization_id = :organization_id AND state <> '{SubjectState.REMOVED}'
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")
_GET = f"SELECT {_COLUMNS} FROM users WHERE organization_id = :organization_id AND id = :id"
_SHOW = text(_GET)
_LOCK = text(f"{_GET} FOR UPDATE")
_MOVE = text("""
UPDATE users SET state = :after WHERE organization_id = :organization_id AND id = :id AND state = :before
""")


async def insert(connection: Connection, organization_id: OrganizationId, user: User) -> bool:
    """Store a user. False when the organization has another one with this email address."""
    return bool(
        await write(
            connection,
            _INSERT,
            id=user.id,
            organization_id=organization_id,
            email=user.email,
            name=user.name,
            now=user.created_at,
        )
    )


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[User]:
    """Those that are not removed, oldest first; `after` is creation time and id of one."""
    return await read(
        connection,
        _PAGE,
        User,
        organization_id=organization_id,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def get(
    connection: Connection, organization_id: OrganizationId, user_id: UserId, *, lock: bool = False
) -> User | None:
    """One of the organization's, removed ones too; with `lock`, locked for this transaction."""
    statement = _LOCK if lock else _SHOW
    return await read_one(connection, statement, User, organization_id=organization_id, id=user_id)


async def move(
    connection: Connection,
    organization_id: OrganizationId,
    user_id: UserId,
    *,
    before: SubjectState,
    after: SubjectState,
) -> bool:
    """Change the state. False when it is another one meanwhile."""
    values = {"before": before.value, "after": after.value}
    return bool(await write(connection, _MOVE, organization_id=organization_id, id=user_id, **values))
