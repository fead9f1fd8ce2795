"""Projects, which divide an organization's leases and their costs."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from control_plane.db import projects
from control_plane.db.connection import Connection
from control_plane.domain.ids import OrganizationId, ProjectId
from control_plane.domain.project import Project
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.world import World


async def create(
    connection: Connection, world: World, organization_id: OrganizationId, *, name: str
) -> Project | Refused:
    project = Project(ProjectId(world.new_id()), organization_id, name, world.now())
    if await projects.insert(connection, project):
        return project
    return Refused(RefusalCode.NAME_TAKEN, f"There is a project called {name!r} already.")


async def page(
    world: World, organization_id: OrganizationId, *, after: tuple[datetime, UUID] | None, limit: int
) -> Sequence[Project]:
    """An organization's projects, oldest first; `after` is creation time and id of the previous page's last project."""
    async with world.db.reading(organization_id) as connection:
        return await projects.page(connection, organization_id, after=after, limit=limit)


async def of_lease(
    connection: Connection, organization_id: OrganizationId, name: str | None
) -> Project | Refused:
    """The project of a new lease: the one that its request names, or the organization's default one."""
    if name is None:
        return await projects.default(connection, organization_id)
    return await named(connection, organization_id, name)


async def named(connection: Connection, organization_id: OrganizationId, name: str) -> Project | Refused:
    """The organization's project of this name."""
    found = await projects.named(connection, organization_id, name)
    return found or Refused(RefusalCode.PROJECT_UNKNOWN, f"There is no project called {name!r}.")
