"""The state machine of a balance, held to its laws over every pair of state and event."""

from control_plane.domain.exhaustion import NEXT, BalanceEvent, BalanceState, step
from tests.support.state_tables import check_all_is_used, check_stepping

S, E = BalanceState, BalanceEvent


def test_every_state_can_be_reached_and_every_event_is_used() -> None:
    check_all_is_used(NEXT, S, E, S.FUNDED)


def test_stepping_answers_the_table_or_ignores_for_every_pair() -> None:
    check_stepping(NEXT, S, E, step)


def test_a_budget_never_changes_the_state_of_a_balance() -> None:
    assert {pair for pair, after in NEXT.items() if pair[0] is after} == {
        (state, E.BUDGET_REACHED) for state in S
    }
