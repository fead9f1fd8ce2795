"""How an organization's money runs out: the state of its balance, and what moves it.

    FUNDED --fell_low--> LOW --ran_out--> EXHAUSTED --machines_stopped--> STOPPED
    FUNDED <--recovered-- LOW <--relieved-- EXHAUSTED, STOPPED;  LOW <--data_deleted-- STOPPED

LOW only warns; what an organization wants to be warned of is in `balance_alert.py`. EXHAUSTED follows from its leases,
whose funding is decided one by one (`funding.py`), and so does STOPPED. A top-up leads back at once, as far as it pays.
"""

from collections.abc import Mapping
from enum import StrEnum

from control_plane.domain.transitions import Ignored, Moved
from control_plane.domain.transitions import step as step_table


class BalanceState(StrEnum):
    FUNDED = "funded"
    """The balance is above the organization's threshold."""
    LOW = "low"
    """It is below, and the customer is warned."""
    EXHAUSTED = "exhausted"
    """The next hour of a lease that runs cannot be set aside. New leases are refused."""
    STOPPED = "stopped"
    """Machines were stopped for lack of money. Their data is kept for a time that the customer is told."""


class BalanceEvent(StrEnum):
    FELL_LOW = "fell_low"
    """The balance fell below the threshold."""
    RAN_OUT = "ran_out"
    """The next hour of a lease could not be set aside."""
    MACHINES_STOPPED = "machines_stopped"
    """A machine was stopped for lack of money."""
    DATA_DELETED = "data_deleted"
    """The leases of machines that were stopped have ended, because the time for which their data was kept is over."""
    RELIEVED = "relieved"
    """No lease lacks money any more: some was paid in, or they have ended."""
    RECOVERED = "recovered"
    """The balance is above the threshold again: money was paid in, or what runs costs less."""
    BUDGET_REACHED = "budget_reached"
    """The charges of the month reached a share of the budget. It leaves the state as it is."""


_S = BalanceState
_E = BalanceEvent

NEXT: Mapping[tuple[BalanceState, BalanceEvent], BalanceState] = {
    (_S.FUNDED, _E.FELL_LOW): _S.LOW,
    (_S.LOW, _E.RECOVERED): _S.FUNDED,
    (_S.FUNDED, _E.RAN_OUT): _S.EXHAUSTED,
    (_S.LOW, _E.RAN_OUT): _S.EXHAUSTED,
    (_S.EXHAUSTED, _E.RELIEVED): _S.LOW,
    (_S.FUNDED, _E.MACHINES_STOPPED): _S.STOPPED,
    (_S.LOW, _E.MACHINES_STOPPED): _S.STOPPED,
    (_S.EXHAUSTED, _E.MACHINES_STOPPED): _S.STOPPED,
    (_S.STOPPED, _E.RELIEVED): _S.LOW,
    (_S.STOPPED, _E.DATA_DELETED): _S.LOW,
    **{(state, _E.BUDGET_REACHED): state for state in BalanceState},
}


def step(
    state: BalanceState, event: BalanceEvent
) -> Moved[BalanceState, BalanceEvent] | Ignored[BalanceState, BalanceEvent]:
    return step_table(NEXT, state, event)
