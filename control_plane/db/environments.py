"""Queries on environments."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read, read_one, write
from control_plane.domain.access import Reach
from control_plane.domain.environment import DEFAULT_NAME, Environment
from control_plane.domain.ids import EnvironmentId, OrganizationId, ProjectId

_INSERT = text("""
INSERT INTO environments (id, organization_id, project_id, name, created_at)
VALUES (:id, :organization_id, :project_id, :name, :now) ON CONFLICT (organization_id, project_id, name) DO NOTHING
""")
_COLUMNS = "id, organization_id, project_id, name, created_at"
_NAMED = text(f"""
SELECT {_COLUMNS} FROM environments
WHERE organization_id = :organization_id AND project_id = :project_id AND name = :name
""")
_GET = text(f"SELECT {_COLUMNS} FROM environments WHERE organization_id = :organization_id AND id = :id")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM environments
WHERE organization_id = :organization_id AND project_id = :project_id
  AND (CAST(:everywhere AS boolean) OR id = ANY(CAST(:environments AS uuid[])))
  AND (CAST(:after_at AS timestamptz) IS NULL OR (created_at, id) > (:after_at, CAST(:after_id AS uuid)))
ORDER BY created_at, id LIMIT :limit
""")

_GET = text(f"SELECT {_COLUMNS} FROM environments WHERE organization_id = :organization_id AND id = :id")


async def insert(connection: Connection, environment: Environment) -> bool:
    """Store an environment. False when the project already has one of that name."""
    return bool(
        await write(
            connection,
            _INSERT,
            id=environment.id,
            organization_id=environment.organization_id,
            project_id=environment.project_id,
            name=environment.name,
            now=environment.created_at,
        )
    )


async def get(
    connection: Connection, organization_id: OrganizationId, environment_id: EnvironmentId
) -> Environment | None:
    return await read_one(connection, _GET, Environment, organization_id=organization_id, id=environment_id)


async def named(
    connection: Connection, organization_id: OrganizationId, project_id: ProjectId, name: str
) -> Environment | None:
    return await read_one(
        connection,
        _NAMED,
        Environment,
        organization_id=organization_id,
        project_id=project_id,
        name=name,
    )


async def default(
    connection: Connection, organization_id: OrganizationId, project_id: ProjectId
) -> Environment:
    """The environment of leases whose request names none. Raises LookupError when the project is not visible."""
    found = await named(connection, organization_id, project_id, DEFAULT_NAME)
    if found is None:
        raise LookupError(f"project {project_id} has no default environment")
    return found


async def page(
    connection: Connection,
    organization_id: OrganizationId,
    project_id: ProjectId,
    reach: Reach,
    *,
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[Environment]:
    """A project's environments within reach, oldest first; `after` is creation time and id of one."""
    return await read(
        connection,
        _PAGE,
        Environment,
        organization_id=organization_id,
        project_id=project_id,
        everywhere=reach.organization or project_id in reach.projects,
        environments=list(reach.environments),
        after_at=after[0] if after else None,
        after_id=after[1] if after else None,
        limit=limit,
    )
