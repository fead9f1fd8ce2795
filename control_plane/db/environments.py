"""Queries on environments."""

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.rows import read_one, write
from control_plane.domain.environment import DEFAULT_NAME, Environment
from control_plane.domain.ids import OrganizationId, ProjectId

_INSERT = text("""
INSERT INTO environments (id, organization_id, project_id, name, created_at)
VALUES (:id, :organization_id, :project_id, :name, :now) ON CONFLICT (organization_id, project_id, name) DO NOTHING
""")
_COLUMNS = "id, organization_id, project_id, name, created_at"
_NAMED = text(f"""
SELECT {_COLUMNS} FROM environments
WHERE organization_id = :organization_id AND project_id = :project_id AND name = :name
""")


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
