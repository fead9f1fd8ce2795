"""API keys on the screen."""

from collections.abc import Callable, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import heading, indented, table
from control_plane.cli.words import coarse, short_id
from control_plane.wire.api_keys import ApiKeyView, IssuedApiKey


def api_key_table(
    keys: Sequence[ApiKeyView], now: datetime, owner: Callable[[str], str | None] = lambda _: None
) -> RenderableType:
    """`owner` tells the name of a subject, where it is known."""
    if not keys:
        return Text("No API keys.")
    ids = [key.id for key in keys]
    subjects = [key.subject for key in keys]
    rows = [
        (
            short_id(key.id, ids),
            Text(key.name, style="bold"),
            owner(key.subject) or short_id(key.subject, subjects),
            key.hint,
            _state(key, now),
            "never" if key.last_used_at is None else coarse(now - key.last_used_at),
        )
        for key in keys
    ]
    columns = ("API KEY", "NAME", "OWNER", "SECRET", "STATE", "USED")
    return table(columns, rows, right=("USED",), whole=("API KEY", "SECRET", "STATE"), varying=("STATE",))


def _state(key: ApiKeyView, now: datetime) -> Text:
    if key.revoked_at is not None:
        return Text("revoked", style="red")
    if key.expires_at is not None and key.expires_at <= now:
        return Text("expired", style="red")
    if key.expires_at is not None:
        return Text(f"{coarse(key.expires_at - now)} left", style="yellow")
    limited = key.scopes is not None or key.project_ids is not None
    return Text("limited" if limited else "in force", style="green")


def issued_page(
    issued: IssuedApiKey, now: datetime, *, owner: str | None = None, stored: bool = False
) -> RenderableType:
    """A new key. Its secret is shown, unless it is stored as the login."""
    parts: list[RenderableType] = [api_key_table([issued.key], now, lambda _: owner)]
    if stored:
        parts += [Text(), Text("You are logged in with it.")]
    elif issued.secret:
        parts += [
            Text(),
            heading("Secret", "shown only now; keep it where nobody else can read it"),
            indented(Text(issued.secret, no_wrap=True, overflow="ignore")),
        ]
    return Group(*parts)
