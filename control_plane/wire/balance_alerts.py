"""Warnings of a low balance and of a monthly budget: what is wanted, and what was told."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Money, NextCursor, Request, Timestamp, UsdText, View
from control_plane.wire.vocabulary import one_of

PERCENTS_MAX = 10
Percent = Annotated[int, Meta(ge=1, le=1_000, examples=[80])]
BalanceStateWord = Annotated[
    str,
    one_of(
        "BalanceState",
        "Where the balance of an organization stands.",
        funded="It is above the threshold.",
        low="It is below, and the customer is warned.",
        exhausted="The next hour of a lease that runs cannot be set aside. New leases are refused.",
        stopped="Machines were stopped for lack of money. Their data is kept until the time that the warning names.",
    ),
]
BalanceEventWord = Annotated[
    str,
    one_of(
        "BalanceEvent",
        "What happened to the balance or the budget of an organization.",
        fell_low="The balance fell below the threshold.",
        ran_out="The next hour of a lease could not be set aside.",
        machines_stopped="Machines were stopped for lack of money.",
        data_deleted="The time was over for which the data of stopped machines was kept: their leases ended.",
        relieved="No lease lacks money any more: some was paid in, or they have ended.",
        recovered="It is above the threshold again.",
        budget_reached="The charges of the month reached a share of the budget.",
    ),
]


class BalanceAlertsRequest(Request):
    """What the organization is warned of from now on. It replaces what was set before as a whole."""

    below_usd: UsdText | None = None
    """Warn when the balance is below this sum. When it is left out, the threshold is what the live leases cost in 24
    hours. With `0` there is no warning."""
    month_budget_usd: UsdText | None = None
    """What is to be spent in a calendar month (UTC). It limits nothing. When it is left out, there is no budget."""
    budget_percents: Annotated[
        tuple[Percent, ...], Meta(max_length=PERCENTS_MAX, examples=[[50, 80, 100]])
    ] = (
        50,
        80,
        100,
    )
    """The shares of the budget that are announced once the charges of the month reach them."""


class BalanceAlertsView(View):
    """What the organization is warned of, and where it stands."""

    state: BalanceStateWord
    """Where the balance stands. It follows the balance within minutes, and a top-up within seconds."""
    warning: str | None
    """The warning as a sentence; null while the balance is above the threshold."""
    balance: Money
    """What was paid in or credited, less what was charged."""
    below: Money | None
    """The threshold that was chosen; null when none was."""
    threshold: Money
    """The threshold that applies now."""
    month_budget: Money | None
    """The budget of a calendar month; null when there is none."""
    budget_percents: tuple[int, ...]
    """The shares of the budget that are announced."""
    month_charged: Money
    """What was charged for the current calendar month (UTC)."""
    reached_percent: int
    """The highest of the shares that it has reached; 0 when none."""


class BalanceEventView(View):
    """A line of the record of a balance, with the money that caused it."""

    number: int
    """Identifies the line. Numbers grow, with gaps."""
    at: Timestamp
    """When it was noticed."""
    event: BalanceEventWord
    """What happened."""
    state_before: BalanceStateWord
    """The state before."""
    state_after: BalanceStateWord
    """The state after."""
    why: str
    """What the customer was told."""
    balance: Money
    """The balance."""
    held: Money
    """What was set aside of it for live leases."""
    limit: Money
    """The threshold, or the share of the budget, that was crossed."""


class BalanceEventPage(View):
    """A page of the record of a balance."""

    items: tuple[BalanceEventView, ...]
    """The lines, newest first."""
    next_cursor: NextCursor | None
