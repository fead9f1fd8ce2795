"""When a customer is warned of its balance and of its budget: once when a limit is crossed, not while it stays crossed.

A balance is low below a threshold: a sum that the organization chose, or what its live leases cost in `LOW_HOURS`. A
top-up, or fewer leases, takes the warning back, so that the next fall below the threshold warns again. A monthly budget
limits nothing: each of its shares is announced when the charges of a calendar month (UTC) reach it. A higher budget
makes shares unreached again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.exhaustion import BalanceEvent, BalanceState
from control_plane.domain.money import NOTHING, Nano, dollars, dollars_down, dollars_up

LOW_HOURS = 24
"""The threshold that applies while nobody chose one, in hours of what the live leases cost."""
BUDGET_PERCENTS = (50, 80, 100)
"""The shares of a budget that are announced while nobody chose others."""
LOOK_AGAIN_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class BalanceAlerts:
    """What an organization wants to be warned of."""

    below_nano: Nano | None = None
    """Warn below this balance. None: below what the live leases cost in `LOW_HOURS`. Zero: never."""
    month_budget_nano: Nano | None = None
    """What it means to spend in a calendar month (UTC); None: there is no budget."""
    budget_percents: tuple[int, ...] = BUDGET_PERCENTS
    """The shares of the budget that are announced, in ascending order."""


@dataclass(frozen=True, slots=True)
class Funds:
    """An organization's money at one moment."""

    balance_nano: Nano
    """Posted to the wallet."""
    held_nano: Nano
    nano_per_hour: Nano
    """What all live leases cost."""
    month: datetime
    """The first instant of the current month."""
    month_nano: Nano
    """Charged for time in that month."""

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is used that could lower the balance."""
        return not (self.held_nano or self.nano_per_hour)


@dataclass(frozen=True, slots=True)
class Noticed:
    """What was noticed of an organization's balance when it was looked at last."""

    state: BalanceState = BalanceState.FUNDED
    budget_month: datetime | None = None
    budget_percent: int = 0
    """The highest share of the budget that was reached in `budget_month`."""

    def budget_percent_of(self, month: datetime) -> int:
        return self.budget_percent if self.budget_month == month else 0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell the customer."""

    event: BalanceEvent
    limit_nano: Nano
    """The threshold or the share of the budget that was crossed."""
    why: str


def threshold(alerts: BalanceAlerts, funds: Funds) -> Nano:
    """The balance below which the customer is warned."""
    return Nano(funds.nano_per_hour * LOW_HOURS) if alerts.below_nano is None else alerts.below_nano


def reached_percent(alerts: BalanceAlerts, funds: Funds) -> int:
    """The highest share of the budget that the charges of the month have reached; 0 when none, or without a budget."""
    budget = alerts.month_budget_nano
    if not budget:
        return 0
    reached = (percent for percent in alerts.budget_percents if funds.month_nano * 100 >= budget * percent)
    return max(reached, default=0)


def notices(alerts: BalanceAlerts, funds: Funds, noticed: Noticed) -> tuple[Notice, ...]:
    """What to tell the customer now."""
    return (*_of_balance(alerts, funds, noticed.state), *_of_budget(alerts, funds, noticed))


def _of_balance(alerts: BalanceAlerts, funds: Funds, state: BalanceState) -> Iterator[Notice]:
    limit = threshold(alerts, funds)
    low = funds.balance_nano < limit
    balance = f"{dollars_down(max(NOTHING, funds.balance_nano))} USD"
    if low and state is BalanceState.FUNDED:
        why = f"The balance is {balance}, below {dollars_up(limit)} USD{_lasts(funds)}; top up."
        yield Notice(BalanceEvent.FELL_LOW, limit, why)
    if not low and state is BalanceState.LOW:
        why = f"The balance is {balance}, no longer below {dollars_up(limit)} USD."
        yield Notice(BalanceEvent.RECOVERED, limit, why)


def _lasts(funds: Funds) -> str:
    if not funds.nano_per_hour:
        return ""
    hours = max(0, funds.balance_nano) // funds.nano_per_hour
    return f", and pays for {hours} h at {dollars_up(funds.nano_per_hour)} USD per hour"


def _of_budget(alerts: BalanceAlerts, funds: Funds, noticed: Noticed) -> Iterator[Notice]:
    percent = reached_percent(alerts, funds)
    if alerts.month_budget_nano is None or percent <= noticed.budget_percent_of(funds.month):
        return
    share = Nano(alerts.month_budget_nano * percent // 100)
    why = (
        f"{dollars(funds.month_nano)} USD were charged for {funds.month:%B %Y}:"
        f" {percent} % of the budget of {dollars(alerts.month_budget_nano)} USD are reached."
    )
    yield Notice(BalanceEvent.BUDGET_REACHED, share, why)
