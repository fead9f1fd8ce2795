"""Stored logins on the screen."""

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.config import File
from control_plane.cli.render.layout import table


def profile_table(file: File) -> RenderableType:
    if not file.profiles:
        return Text("No logins are stored; run: splitplane login --url URL")
    rows = [
        (
            "*" if name == file.in_use else "",
            name,
            login.holder.organization,
            login.kind,
            login.url,
        )
        for name, login in sorted(file.profiles.items())
    ]
    return table(("", "PROFILE", "ORGANIZATION", "LOGIN", "API"), rows)
