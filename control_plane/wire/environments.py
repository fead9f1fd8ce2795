"""Environments, which divide a project."""

from control_plane.wire.common import Name, NextCursor, Request, Timestamp, View
from control_plane.wire.vocabulary import EnvironmentIdText, ProjectIdText


class EnvironmentRequest(Request):
    """An environment to be made."""

    name: Name
    """Unique in the project, such as `prod`. It must not begin with `env_`."""


class EnvironmentView(View):
    """An environment of a project."""

    id: EnvironmentIdText
    """The id of the environment."""
    project_id: ProjectIdText
    """The project."""
    name: str
    """Every project starts with an environment called `default`, to which leases belong that name none."""
    created_at: Timestamp
    """When it was created."""


class EnvironmentPage(View):
    """A page of environments."""

    items: tuple[EnvironmentView, ...]
    """The environments, oldest first."""
    next_cursor: NextCursor | None
