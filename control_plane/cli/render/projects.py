"""Projects on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import coarse
from control_plane.wire.projects import ProjectView


def project_table(projects: Sequence[ProjectView], now: datetime) -> RenderableType:
    if not projects:
        return Text("No projects that you may see.")
    rows = [(project.name, project.id, coarse(now - project.created_at)) for project in projects]
    return table(("NAME", "ID", "AGE"), rows, right=("AGE",), whole=("ID",))
