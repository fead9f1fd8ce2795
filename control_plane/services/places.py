"""Where a lease is to be: the project and the environment that a request names, or the default ones."""

from dataclasses import dataclass

from control_plane.db.connection import Connection
from control_plane.domain.access import Reach
from control_plane.domain.environment import Environment
from control_plane.domain.ids import OrganizationId
from control_plane.domain.project import Project
from control_plane.domain.refusal import Refused
from control_plane.outcomes.lease_orders import LeasePlace
from control_plane.services import environments, projects


@dataclass(frozen=True, slots=True)
class Place:
    """Where a lease is to be."""

    project: Project
    environment: Environment

    @property
    def of_leases(self) -> LeasePlace:
        project, environment = self.project, self.environment
        return LeasePlace(project.organization_id, project.id, project.name, environment.id, environment.name)


async def place_of(
    connection: Connection,
    organization_id: OrganizationId,
    project: str | None,
    environment: str | None,
    *,
    reach: Reach,
) -> Place | Refused:
    of_project = await projects.of_lease(connection, organization_id, project, reach=reach)
    if isinstance(of_project, Refused):
        return of_project
    in_environment = await environments.of_lease(connection, of_project, environment, reach=reach)
    return in_environment if isinstance(in_environment, Refused) else Place(of_project, in_environment)
