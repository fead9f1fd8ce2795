"""Projects on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.project import Project
from control_plane.wire.projects import ProjectView


def project_view(project: Project) -> ProjectView:
    return ProjectView(
        id=on_wire(Prefix.PROJECT, project.id), name=project.name, created_at=project.created_at
    )
