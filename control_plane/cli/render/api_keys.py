"""API keys on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import heading, indented, table
from control_plane.cli.words import coarse, short_id
from control_plane.wire.api_keys import ApiKeyView, IssuedApiKey


def api_key_table(keys: Sequence[ApiKeyView], now: datetime) -> RenderableType:
    if not keys:
        return Text("No API keys.")
    ids = [key.id for key in keys]
    rows = [
        (
            short_id(key.id, ids),
            Text(key.name, style="bold"),
            key.role,
            key.hint,
            Text("revoked", style="red") if key.revoked_at else Text("in force", style="green"),
            coarse(now - key.created_at),
        )
        for key in keys
    ]
    columns = ("API KEY", "NAME", "ROLE", "SECRET", "STATE", "AGE")
    return table(columns, rows, right=("AGE",), whole=("API KEY", "SECRET", "STATE"), varying=("STATE",))


def issued_page(issued: IssuedApiKey, now: datetime, *, stored: bool = False) -> RenderableType:
    """A new key. Its secret is shown, unless it is stored as the login."""
    parts: list[RenderableType] = [api_key_table([issued.key], now)]
    if stored:
        parts += [Text(), Text("You are logged in with it.")]
    elif issued.secret:
        parts += [
            Text(),
            heading("Secret", "shown only now; keep it where nobody else can read it"),
            indented(Text(issued.secret, no_wrap=True, overflow="ignore")),
        ]
    return Group(*parts)
