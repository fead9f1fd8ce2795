"""How an organization's money runs out: the state of its balance, and what moves it.

    FUNDED --fell_low--> LOW --recovered--> FUNDED

LOW only warns. What an organization wants to be warned of is in `balance_alert.py`.
"""

from enum import StrEnum

from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class BalanceState(StrEnum):
    FUNDED = "funded"
    """The balance is above the organization's threshold."""
    LOW = "low"
    """It is below, and the customer is warned."""


class BalanceEvent(StrEnum):
    FELL_LOW = "fell_low"
    """The balance fell below the threshold."""
    RECOVERED = "recovered"
    """It is above again: money was paid in, or what runs costs less."""
    BUDGET_REACHED = "budget_reached"
    """The charges of the month reached a share of the budget. It leaves the state as it is."""


_S = BalanceState
_E = BalanceEvent

NEXT: dict[tuple[BalanceState, BalanceEvent], BalanceState] = {
    (_S.FUNDED, _E.FELL_LOW): _S.LOW,
    (_S.LOW, _E.RECOVERED): _S.FUNDED,
    (_S.FUNDED, _E.BUDGET_REACHED): _S.FUNDED,
    (_S.LOW, _E.BUDGET_REACHED): _S.LOW,
}


def step(
    state: BalanceState, event: BalanceEvent
) -> Moved[BalanceState, BalanceEvent] | Ignored[BalanceState, BalanceEvent]:
    return step_table(NEXT, state, event)
