"""Requests concerning provider accounts on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import ago
from control_plane.wire.account_requests import AccountRequestView

_STYLES = {"accepted": ("✓", "green"), "refused": ("✗", "red"), "unreachable": ("▲", "yellow")}


def request_lines(request: AccountRequestView) -> RenderableType:
    """One request that was finished."""
    line = _outcome(request)
    line.append(f"  {request.account}", style="bold")
    return line.append(f": {request.said}" if request.said else "")


def request_table(requests: Sequence[AccountRequestView], now: datetime) -> RenderableType:
    if not requests:
        return Text("Nothing was asked for.")
    rows = [
        (
            ago(request.asked_at, now),
            Text(request.account, style="bold"),
            request.verb,
            _outcome(request),
            request.said or request.why or "-",
        )
        for request in requests
    ]
    return table(("ASKED", "ACCOUNT", "FOR", "OUTCOME", "SAID"), rows)


def _outcome(request: AccountRequestView) -> Text:
    if request.outcome is None:
        return Text("● open")
    sign, style = _STYLES.get(request.outcome, ("●", ""))
    return Text(f"{sign} {request.outcome}", style=style)
