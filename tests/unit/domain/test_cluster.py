"""The state machine of clusters, held to its laws over every pair of state and event."""

from control_plane.domain.cluster import (
    LIVE,
    NEXT,
    TERMINAL,
    ClusterEvent,
    ClusterState,
    step,
)
from tests.support.state_tables import check_all_is_used, check_ends, check_moves, check_stepping

S, E = ClusterState, ClusterEvent


def test_every_state_can_be_reached_and_every_event_is_used() -> None:
    check_all_is_used(NEXT, S, E, S.BUILDING)


def test_nothing_leaves_gone_and_from_every_other_state_it_can_be_reached() -> None:
    check_ends(NEXT, S, TERMINAL)
    assert set(S) - TERMINAL == LIVE


def test_no_event_leads_back_to_where_it_began() -> None:
    check_moves(NEXT)


def test_stepping_answers_the_table_or_ignores_for_every_pair() -> None:
    check_stepping(NEXT, S, E, step)


def test_a_cluster_is_gone_only_once_its_server_is_dismantled() -> None:
    assert {pair for pair, after in NEXT.items() if after is S.GONE} == {(S.DELETING, E.DISMANTLED)}
