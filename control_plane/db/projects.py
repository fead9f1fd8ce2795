"""Queries on projects."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.access import Reach
from control_plane.domain.ids import OrganizationId, ProjectId
from control_plane.domain.project import DEFAULT_NAME, Project

_INSERT = text("""
INSERT INTO projects (id, organization_id, name, created_at) VALUES (:id, :organization_id, :name, :now)
ON CONFLICT (organization_id, name) DO NOTHING
""")
_COLUMNS = "id, organization_id, name, created_at"
_GET = text(f"SELECT {_COLUMNS} FROM projects WHERE organization_id = :organization_id AND id = :id")
_RENAME = text("UPDATE projects SET name = :name WHERE organization_id = :organization_id AND id = :id")
_NAMED = text(f"SELECT {_COLUMNS} FROM projects WHERE organization_id = :organization_id AND name = :name")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM projects
WHERE organization_id = :organization_id AND (CAST(:everywhere AS boolean) OR id = ANY(CAST(:projects AS uuid[])))
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")


async def insert(connection: Connection, project: Project) -> bool:
    """Store a project. False when the organization already has one of that name."""
    values = {"id": project.id, "organization_id": project.organization_id, "name": project.name}
    return bool(await write(connection, _INSERT, **values, now=project.created_at))


async def named(connection: Connection, organization_id: OrganizationId, name: str) -> Project | None:
    return await read_one(connection, _NAMED, Project, organization_id=organization_id, name=name)


async def get(
    connection: Connection, organization_id: OrganizationId, project_id: ProjectId
) -> Project | None:
    return await read_one(connection, _GET, Project, organization_id=organization_id, id=project_id)


async def rename(connection: Connection, project: Project, name: str) -> bool:
    """Rename a project. False when its organization has one of that name; the transaction must then roll back."""
    values = {"organization_id": project.organization_id, "id": project.id, "name": name}
    try:
        await write(connection, _RENAME, **values)
    except IntegrityError:
        return False
    return True


async def default(connection: Connection, organization_id: OrganizationId) -> Project:
    """The project of leases whose request names none. Raises LookupError when the organization is not visible."""
    found = await named(connection, organization_id, DEFAULT_NAME)
    if found is None:
        raise LookupError(f"organization {organization_id} has no default project")
    return found


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    reach: Reach,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Project]:
    """An organization's projects within reach, oldest first; `after` is creation time and id of the last one read."""
    return await read(
        connection,
        _PAGE,
        Project,
        organization_id=organization_id,
        everywhere=reach.organization,
        projects=list(reach.projects),
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )
