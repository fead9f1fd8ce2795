"""Queries on service accounts."""

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import write
from control_plane.domain.ids import OrganizationId
from control_plane.domain.service_account import ServiceAccount

_INSERT = text("""
INSERT INTO service_accounts (id, organization_id, name, state, created_at)
VALUES (:id, :organization_id, :name, :state, :now)
ON CONFLICT (organization_id, name) WHERE state <> 'removed' DO NOTHING
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
            state=account.state.value,
            now=account.created_at,
        )
    )
