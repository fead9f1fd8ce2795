"""The names that an organization and a project have in clusters."""

from control_plane.domain.ids import OrganizationId, Prefix, ProjectId, on_wire
from data_plane.cluster.objects.tenant import Tenant


def tenant_of(organization_id: OrganizationId, project_id: ProjectId) -> Tenant:
    return Tenant(on_wire(Prefix.ORGANIZATION, organization_id), on_wire(Prefix.PROJECT, project_id))
