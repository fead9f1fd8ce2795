"""Projects, among which an organization divides its leases and their costs."""

from control_plane.wire.common import Name, NextCursor, Request, Timestamp, View
from control_plane.wire.vocabulary import ProjectIdText


class ProjectRequest(Request):
    """A project to be made, or its new name."""

    name: Name
    """Unique in the organization. It must not begin with `prj_`, since a project is named by its name or by its id."""


class ProjectView(View):
    """A project."""

    id: ProjectIdText
    """The id of the project."""
    name: str
    """It can change, and the id cannot. Every organization starts with a project called `default`, to which leases
    belong that name no project."""
    created_at: Timestamp
    """When it was created."""


class ProjectPage(View):
    """A page of projects."""

    items: tuple[ProjectView, ...]
    """The projects, oldest first."""
    next_cursor: NextCursor | None
