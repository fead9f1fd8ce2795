"""The balance of your organization."""

from control_plane.cli.commands import balance_alerts
from control_plane.cli.parsing import Commands, noun


def add(to: Commands) -> None:
    balance_alerts.add(noun(to, "balance", "Be warned of a low balance, and of what a month has cost."))
