"""Warnings of balances and budgets on the wire, in both directions."""

from control_plane.api.views.money import money, money_or_none
from control_plane.domain.balance_alert import BalanceAlerts
from control_plane.domain.money import parse_usd
from control_plane.services.balance_alerts import Recorded, ShownAlerts
from control_plane.wire.balance_alerts import BalanceAlertsRequest, BalanceAlertsView, BalanceEventView


def alerts_of(data: BalanceAlertsRequest) -> BalanceAlerts:
    """The alerts of a body as the domain's value. A budget of zero is no budget."""
    budget = None if data.month_budget_usd is None else parse_usd(data.month_budget_usd)
    return BalanceAlerts(
        below_nano=None if data.below_usd is None else parse_usd(data.below_usd),
        month_budget_nano=budget or None,
        budget_percents=tuple(sorted(set(data.budget_percents))),
    )


def alerts_view(shown: ShownAlerts) -> BalanceAlertsView:
    return BalanceAlertsView(
        state=shown.state.value,
        warning=shown.warning,
        balance=money(shown.funds.balance_nano),
        below=money_or_none(shown.alerts.below_nano),
        threshold=money(shown.threshold_nano),
        month_budget=money_or_none(shown.alerts.month_budget_nano),
        budget_percents=shown.alerts.budget_percents,
        month_charged=money(shown.funds.month_nano),
        reached_percent=shown.reached_percent,
    )


def balance_event_view(recorded: Recorded) -> BalanceEventView:
    return BalanceEventView(
        number=recorded.number,
        at=recorded.at,
        event=recorded.event.value,
        state_before=recorded.state_before.value,
        state_after=recorded.state_after.value,
        why=recorded.why,
        balance=money(recorded.balance_nano),
        held=money(recorded.held_nano),
        limit=money(recorded.limit_nano),
    )
