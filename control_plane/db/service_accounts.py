"""Queries on service accounts."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.ids import OrganizationId, ServiceAccountId
from control_plane.domain.service_account import ServiceAccount
from control_plane.domain.subject import SubjectState

_COLUMNS = "id, name, state, created_at"
_INSERT = text(f"""
INSERT INTO service_accounts (id, organization_id, name, state, created_at)
VALUES (:id, :organization_id, :name, '{SubjectState.ACTIVE}', :now)
ON CONFLICT (organization_id, name) WHERE state <> '{SubjectState.REMOVED}' DO NOTHING
""")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM service_accounts
WHERE organization_id = :organization_id AND state <> '{SubjectState.REMOVED}'
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")
_GET = f"SELECT {_COLUMNS} FROM service_accounts WHERE organization_id = :organization_id AND id = :id"
_SHOW = text(_GET)
_LOCK = text(f"{_GET} FOR UPDATE")
_MOVE = text("""
UPDATE service_accounts SET state = :after WHERE organization_id = :organization_id AND id = :id AND state = :before
""")


async def insert(connection: Connection, organization_id: OrganizationId, account: ServiceAccount) -> bool:
    """Store a service account. False when the organization has another one of that name."""
    return bool(
        await write(
            connection,
            _INSERT,
            id=account.id,
            organization_id=organization_id,
            name=account.name,
            now=account.created_at,
        )
    )


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[ServiceAccount]:
    """Those that are not removed, oldest first; `after` is creation time and id of one."""
    return await read(
        connection,
        _PAGE,
        ServiceAccount,
        organization_id=organization_id,
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )


async def get(
    connection: Connection,
    organization_id: OrganizationId,
    account_id: ServiceAccountId,
    *,
    lock: bool = False,
) -> ServiceAccount | None:
    """One of the organization's, removed ones too; with `lock`, locked for this transaction."""
    statement = _LOCK if lock else _SHOW
    return await read_one(
        connection, statement, ServiceAccount, organization_id=organization_id, id=account_id
    )


async def move(
    connection: Connection,
    organization_id: OrganizationId,
    account_id: ServiceAccountId,
    *,
    before: SubjectState,
    after: SubjectState,
) -> bool:
    """Change the state. False when it is another one meanwhile."""
    values = {"before": before.value, "after": after.value}
    return bool(await write(connection, _MOVE, organization_id=organization_id, id=account_id, **values))
