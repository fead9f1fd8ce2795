"""Environments on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import coarse
from control_plane.wire.environments import EnvironmentView


def environment_table(environments: Sequence[EnvironmentView], now: datetime) -> RenderableType:
    if not environments:
        return Text("No environments that you may see.")
    rows = [
        (environment.name, environment.id, coarse(now - environment.created_at))
        for environment in environments
    ]
    return table(("NAME", "ID", "AGE"), rows, right=("AGE",), whole=("ID",))
