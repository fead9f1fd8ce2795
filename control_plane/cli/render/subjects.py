"""Users and service accounts on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import coarse, short_id
from control_plane.wire.subjects import ServiceAccountView, UserView

STATE_STYLES = {"active": "green", "invited": "yellow", "suspended": "red", "removed": "red"}


def user_table(users: Sequence[UserView], now: datetime) -> RenderableType:
    if not users:
        return Text("No users.")
    ids = [user.id for user in users]
    rows = [
        (
            short_id(user.id, ids),
            user.email,
            Text(user.name, style="bold"),
            _state(user.state),
            coarse(now - user.created_at),
        )
        for user in users
    ]
    columns = ("USER", "EMAIL", "NAME", "STATE", "AGE")
    return table(columns, rows, right=("AGE",), whole=("USER", "STATE"))


def service_account_table(accounts: Sequence[ServiceAccountView], now: datetime) -> RenderableType:
    if not accounts:
        return Text("No service accounts.")
    rows = [
        (
            Text(account.name, style="bold"),
            account.id,
            _state(account.state),
            coarse(now - account.created_at),
        )
        for account in accounts
    ]
    return table(("NAME", "ID", "STATE", "AGE"), rows, right=("AGE",), whole=("ID", "STATE"))


def _state(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))
