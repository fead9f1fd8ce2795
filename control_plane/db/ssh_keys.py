"""Queries on customers' SSH keys."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db import ssh_certificates
from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.access import Reach
from control_plane.domain.ids import OrganizationId, ProjectId, SshKeyId


@dataclass(frozen=True, slots=True)
class SshKey:
    id: SshKeyId
    name: str
    public_key: str
    fingerprint: str
    project_id: ProjectId | None
    """The project whose leases it is for; None: all of the organization's."""
    created_at: datetime


_INSERT = text("""
INSERT INTO ssh_keys (id, organization_id, name, public_key, fingerprint, project_id, created_at)
VALUES (:id, :organization_id, :name, :public_key, :fingerprint, :project_id, :now)
""")
_COLUMNS = "id, name, public_key, fingerprint, project_id, created_at"
_WITHIN = "(CAST(:everywhere AS boolean) OR project_id = ANY(CAST(:projects AS uuid[])))"
_ALL = text(f"""
SELECT {_COLUMNS} FROM ssh_keys WHERE organization_id = :organization_id AND {_WITHIN} ORDER BY created_at, id
""")
_OF_PROJECT = text(f"""
SELECT {_COLUMNS} FROM ssh_keys
WHERE organization_id = :organization_id AND (project_id IS NULL OR project_id = :project_id) ORDER BY created_at, id
""")
_HOLD = text(f"""
SELECT {_COLUMNS} FROM ssh_keys
WHERE organization_id = :organization_id AND (id = ANY(CAST(:ids AS uuid[])) OR fingerprint = :fingerprint)
ORDER BY id FOR SHARE
""")
_DELETE = text(f"""
DELETE FROM ssh_keys WHERE organization_id = :organization_id AND id = :id AND {_WITHIN} RETURNING {_COLUMNS}
""")


async def insert(connection: Connection, organization_id: OrganizationId, key: SshKey) -> None:
    """Store a key. The caller holds the standing's lock, and has seen that its name and fingerprint are new."""
    await write(
        connection,
        _INSERT,
        id=key.id,
        organization_id=organization_id,
        name=key.name,
        public_key=key.public_key,
        fingerprint=key.fingerprint,
        project_id=key.project_id,
        now=key.created_at,
    )


async def every(connection: Connection, organization_id: OrganizationId, reach: Reach) -> list[SshKey]:
    """The organization's keys within reach, oldest first. A key of no project needs the whole organization."""
    values = {"everywhere": reach.organization, "projects": list(reach.projects)}
    return await read(connection, _ALL, SshKey, organization_id=organization_id, **values)


async def of_project(
    connection: Connection, organization_id: OrganizationId, project_id: ProjectId
) -> list[SshKey]:
    """The keys that leases of a project can admit: those of the project, and those of the organization."""
    values = {"organization_id": organization_id, "project_id": project_id}
    return await read(connection, _OF_PROJECT, SshKey, **values)


async def hold(
    connection: Connection, organization_id: OrganizationId, ids: Collection[SshKeyId], fingerprint: str
) -> list[SshKey]:
    """The stored keys with these ids or this fingerprint. None is deleted before this transaction ends."""
    values = {"organization_id": organization_id, "ids": list(ids), "fingerprint": fingerprint}
    return await read(connection, _HOLD, SshKey, **values)


async def delete(
    connection: Connection, organization_id: OrganizationId, key_id: UUID, reach: Reach, *, now: datetime
) -> bool:
    """Delete a key, and revoke its certificates. False when there is no such key within reach."""
    values = {"everywhere": reach.organization, "projects": list(reach.projects)}
    deleted = await read_one(
        connection, _DELETE, SshKey, organization_id=organization_id, id=key_id, **values
    )
    if deleted is None:
        return False
    await ssh_certificates.revoke_of_key(
        connection, organization_id, deleted.fingerprint, deleted.project_id, now=now
    )
    return True
