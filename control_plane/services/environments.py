"""Environments, which divide a project."""

from control_plane.db import environments
from control_plane.db.connection import Connection
from control_plane.domain.environment import DEFAULT_NAME, Environment
from control_plane.domain.ids import EnvironmentId
from control_plane.domain.project import Project
from control_plane.world import World


async def add_default_environment(connection: Connection, world: World, project: Project) -> None:
    """Give a new project its first environment."""
    made = Environment(
        EnvironmentId(world.new_id()),
        project.organization_id,
        project.id,
        DEFAULT_NAME,
        created_at=project.created_at,
    )
    await environments.insert(connection, made)
