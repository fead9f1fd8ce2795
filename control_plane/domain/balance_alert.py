"""When a customer is warned of its balance and of its budget: once when a limit is crossed, not while it stays crossed.

A balance is low below a threshold: a sum that the organization chose, or what its live leases cost in `LOW_HOURS`. A
top-up, or fewer leases, takes the warning back, so that the next fall below the threshold warns again. A monthly budget
limits nothing: each of its shares is announced when the charges of a calendar month (UTC) reach it. A higher budget
makes shares unreached again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.exhaustion import NEXT, BalanceEvent, BalanceState
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
class Lacking:
    """What an organization has too little money for."""

    short_leases: int = 0
    """Ready leases for which the next hour cannot be set aside, with those whose machines were stopped for that."""
    short_nano: Nano = NOTHING
    """What that hour costs."""
    kept_leases: int = 0
    """Those of them whose machines were stopped, and whose data is kept."""
    kept_until: datetime | None = None
    """Until when the data is kept of the first one; None when there is none."""
    deleted_leases: int = 0
    """Leases that ended since the last change of the state, because that time was over."""


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
    lacking: Lacking = Lacking()
    credit_nano: Nano = NOTHING
    """What is left of the credit limit, beside what is on no invoice yet."""

    @property
    def spendable_nano(self) -> Nano:
        """The balance, with credit."""
        return Nano(self.balance_nano + self.credit_nano)

    @property
    def available_nano(self) -> Nano:
        return Nano(self.spendable_nano - self.held_nano)

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
    """One notice for each step to the state that the money is in."""
    while (notice := _next(alerts, funds, state)) is not None:
        yield notice
        state = NEXT[state, notice.event]


def _next(alerts: BalanceAlerts, funds: Funds, state: BalanceState) -> Notice | None:
    lacking = funds.lacking
    if state is BalanceState.STOPPED:
        return None if lacking.kept_leases else _over(lacking)
    if lacking.kept_leases:
        return Notice(BalanceEvent.MACHINES_STOPPED, lacking.short_nano, _stopped(funds))
    if state is BalanceState.EXHAUSTED:
        return None if lacking.short_leases else Notice(BalanceEvent.RELIEVED, NOTHING, _RELIEVED)
    if lacking.short_leases:
        return Notice(BalanceEvent.RAN_OUT, lacking.short_nano, _ran_out(funds))
    return _of_threshold(alerts, funds, state)


def _of_threshold(alerts: BalanceAlerts, funds: Funds, state: BalanceState) -> Notice | None:
    limit = threshold(alerts, funds)
    low = funds.spendable_nano < limit
    balance = f"{dollars_down(funds.spendable_nano)} USD{' with credit' if funds.credit_nano else ''}"
    if low and state is BalanceState.FUNDED:
        why = f"The balance is {balance}, below {dollars_up(limit)} USD{_lasts(funds)}; top up."
        return Notice(BalanceEvent.FELL_LOW, limit, why)
    if not low and state is BalanceState.LOW:
        why = f"The balance is {balance}, no longer below {dollars_up(limit)} USD."
        return Notice(BalanceEvent.RECOVERED, limit, why)
    return None


def _ran_out(funds: Funds) -> str:
    count, short = funds.lacking.short_leases, dollars_up(funds.lacking.short_nano)
    available = dollars_down(funds.available_nano)
    leases = "a lease" if count == 1 else f"{count} leases"
    return (
        f"{available} USD is available, and the next hour of {leases} costs {short} USD. New leases are refused, and"
        " machines are stopped, or their leases end, when what is held for them is used; top up."
    )


def _stopped(funds: Funds) -> str:
    lacking = funds.lacking
    missing = Nano(lacking.short_nano - min(NOTHING, funds.available_nano))
    machines = "A machine was" if lacking.kept_leases == 1 else f"{lacking.kept_leases} machines were"
    until = "" if lacking.kept_until is None else f" until {lacking.kept_until:%Y-%m-%d %H:%M} UTC"
    return (
        f"{machines} stopped for lack of money. The data is kept{until}, and deleted after that. Top up"
        f" {dollars_up(missing)} USD, and start what you need: nothing starts by itself."
    )


def _over(lacking: Lacking) -> Notice:
    if lacking.deleted_leases:
        return Notice(BalanceEvent.DATA_DELETED, NOTHING, _DELETED)
    return Notice(BalanceEvent.RELIEVED, NOTHING, _RELIEVED)


_DELETED = "The time is over for which data of stopped machines was kept: their leases have ended, and it is deleted."
_RELIEVED = "No lease lacks money for its next hour any more. Machines that were stopped stay so until you start them."


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
