"""Projects, among which an organization divides its leases and their costs."""

from datetime import datetime

from control_plane.wire.common import Name, Request, View


class ProjectRequest(Request):
    name: Name
    """Unique in the organization. Leases name their project by it."""


class ProjectView(View):
    id: str
    name: str
    """Every organization starts with one called `default`, to which leases belong that name no project."""
    created_at: datetime


class ProjectPage(View):
    items: tuple[ProjectView, ...]
    next_cursor: str | None
