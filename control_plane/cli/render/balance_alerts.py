"""Warnings of a low balance and of a monthly budget on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import ago, rounded, spaced
from control_plane.wire.balance_alerts import BalanceAlertsView, BalanceEventView

STATE_STYLES = {"funded": "green", "low": "yellow", "exhausted": "red", "stopped": "red"}


def alerts_page(alerts: BalanceAlertsView) -> RenderableType:
    threshold = f"{rounded(alerts.threshold)} USD"
    default = "" if alerts.below is not None else ", what runs costs that in 24 hours"
    percents = ", ".join(f"{percent} %" for percent in alerts.budget_percents) or "no share"
    budget = (
        "none"
        if alerts.month_budget is None
        else f"{rounded(alerts.month_budget)} USD a month; warns at {percents}"
    )
    reached = f"; {alerts.reached_percent} % of the budget are reached" if alerts.reached_percent else ""
    return Group(
        heading("Balance alerts", "of your organization"),
        Text(),
        facts(
            ("State", Text(spaced(alerts.state), style=STATE_STYLES.get(alerts.state, ""))),
            ("Balance", f"{rounded(alerts.balance)} USD"),
            ("Warns below", f"{threshold}{default}"),
            ("Budget", budget),
            ("This month", f"{rounded(alerts.month_charged)} USD charged{reached}"),
            ("Warning", alerts.warning),
        ),
    )


def balance_event_table(events: Sequence[BalanceEventView], now: datetime) -> RenderableType:
    if not events:
        return Text("Your organization was never warned of its balance or its budget.")
    rows = [
        (
            ago(event.at, now),
            Text(spaced(event.event), style="bold"),
            Text(spaced(event.state_after), style=STATE_STYLES.get(event.state_after, "")),
            rounded(event.balance),
            event.why,
        )
        for event in events
    ]
    columns = ("WHEN", "EVENT", "STATE", "BALANCE USD", "WHY")
    return table(columns, rows, right=("BALANCE USD",), whole=("WHEN", "STATE"))
