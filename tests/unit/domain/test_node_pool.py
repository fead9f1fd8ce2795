"""Node pools: the laws of their state machine, and what follows for the leases of their nodes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.deadline import LOOKED_AT_WITHIN, TRIED_FIRST
from control_plane.domain.ids import ClusterId, EnvironmentId, LeaseId, NodePoolId, OrganizationId, ProjectId
from control_plane.domain.lease import LeaseState
from control_plane.domain.node_pool import (
    LIVE,
    NEXT,
    TERMINAL,
    WANTED,
    Close,
    Delete,
    LookAgain,
    Member,
    NodePool,
    NodePoolEvent,
    NodePoolState,
    Release,
    Replace,
    decide,
    step,
    to_release,
)
from control_plane.domain.request import CapacityRequest
from tests.support.state_tables import check_all_is_used, check_ends, check_moves, check_stepping

S, E, L = NodePoolState, NodePoolEvent, LeaseState
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
POOL = NodePool(
    id=NodePoolId(UUID(int=1)),
    organization_id=OrganizationId(UUID(int=2)),
    project_id=ProjectId(UUID(int=3)),
    project="default",
    environment_id=EnvironmentId(UUID(int=4)),
    environment="prod",
    cluster_id=ClusterId(UUID(int=5)),
    cluster="eu-1",
    name="train",
    request=CapacityRequest("h100-sxm.8x"),
    nodes=2,
    node_labels={},
    node_taints=(),
    wait_timeout_seconds=1_800,
    state=S.PENDING,
    generation=1,
    due_at=NOW,
    waiting_since=None,
    waiting_code=None,
    waiting_why=None,
    why=None,
    created_at=NOW,
    ready_at=None,
    gone_at=None,
)
READY = replace(POOL, state=S.READY, ready_at=NOW)
DELETING = replace(POOL, state=S.DELETING)


def members(*states: LeaseState) -> list[Member]:
    """Leases in these states, each created a second after the one before."""
    return [
        Member(LeaseId(UUID(int=number)), state, NOW + timedelta(seconds=number))
        for number, state in enumerate(states)
    ]


def numbers(leases: tuple[LeaseId, ...]) -> list[int]:
    return [lease.int for lease in leases]


def test_every_state_can_be_reached_and_every_event_is_used() -> None:
    check_all_is_used(NEXT, S, E, S.PENDING)


def test_nothing_leaves_gone_and_from_every_other_state_it_can_be_reached() -> None:
    check_ends(NEXT, S, TERMINAL)
    assert set(S) - TERMINAL == LIVE


def test_no_event_leads_back_to_where_it_began() -> None:
    check_moves(NEXT)


def test_stepping_answers_the_table_or_ignores_for_every_pair() -> None:
    check_stepping(NEXT, S, E, step)


def test_a_pool_that_was_ready_once_is_never_given_up() -> None:
    assert {before for before, event in NEXT if event is E.GAVE_UP} == {S.PENDING}
    much_later = NOW + timedelta(days=30)
    assert decide(READY, members(L.READY, L.READY), ended_why=None, now=much_later) is None


def test_a_pool_with_as_many_live_leases_as_nodes_is_left_alone() -> None:
    for pool in (POOL, READY):
        for states in ((L.PLACING, L.STARTING), (L.READY, L.READY), (L.ENDED, L.READY, L.ENDING, L.STARTING)):
            assert decide(pool, members(*states), ended_why=None, now=NOW) is None, (pool.state, states)


def test_a_lease_that_ended_is_replaced_before_its_machine_is_gone() -> None:
    for ended in (L.ENDING, L.ENDED):
        assert decide(READY, members(L.READY, ended), ended_why=None, now=NOW) == Replace(1)
    assert decide(POOL, members(L.ENDED, L.ENDED), ended_why=None, now=NOW) == Replace(2)


def test_what_has_run_longest_goes_last() -> None:
    states = (L.READY, L.READY, L.STARTING, L.STARTING, L.PLACING, L.ENDING, L.PLACING)
    order = [6, 4, 3, 2, 1, 0]
    for left in range(7):
        assert numbers(to_release(left, members(*states))) == order[: 6 - left], left
    assert decide(READY, members(L.READY, L.READY, L.READY), ended_why=None, now=NOW) == Release(
        (LeaseId(UUID(int=2)),)
    )


def test_a_pool_that_is_not_ready_in_its_time_is_given_up_with_all_its_leases() -> None:
    over = POOL.gives_up_at
    early = decide(POOL, members(L.STARTING, L.PLACING), ended_why=None, now=over - timedelta(seconds=1))
    assert early is None
    found = decide(POOL, members(L.STARTING, L.PLACING, L.ENDED), ended_why=None, now=over)
    assert isinstance(found, Delete)
    assert found.event is E.GAVE_UP
    assert "2 nodes" in found.why
    assert "1 of them had a machine" in found.why


def test_a_pool_that_nobody_looked_at_in_time_gets_another_moment() -> None:
    late = POOL.gives_up_at + LOOKED_AT_WITHIN + timedelta(seconds=1)
    again = decide(POOL, members(L.STARTING), ended_why=None, now=late)
    assert again == LookAgain(late + TRIED_FIRST)
    looked = replace(POOL, due_at=late + TRIED_FIRST)
    found = decide(looked, members(L.STARTING), ended_why=None, now=looked.due_at)
    assert isinstance(found, Delete)
    # Another outage over that moment sets another one.
    later = looked.due_at + LOOKED_AT_WITHIN + timedelta(seconds=1)
    assert decide(looked, members(L.STARTING), ended_why=None, now=later) == LookAgain(later + TRIED_FIRST)


def test_a_pool_ends_with_its_cluster_and_with_its_organization() -> None:
    for pool in (POOL, READY):
        found = decide(pool, members(L.READY), ended_why="the cluster is being deleted", now=NOW)
        assert found == Delete(E.DELETED, "the cluster is being deleted")
    assert decide(DELETING, members(L.ENDING), ended_why="the cluster is being deleted", now=NOW) is None


def test_a_pool_is_gone_only_when_every_lease_has_ended() -> None:
    for state in set(L) - {L.ENDED}:
        assert decide(DELETING, members(L.ENDED, state), ended_why=None, now=NOW) != Close(), state
    assert decide(DELETING, members(L.ENDED, L.ENDED), ended_why=None, now=NOW) == Close()
    assert decide(DELETING, [], ended_why=None, now=NOW) == Close()


def test_a_pool_that_is_being_deleted_gets_no_new_lease_and_loses_those_that_live() -> None:
    found = decide(DELETING, members(L.READY, L.ENDED, L.PLACING), ended_why=None, now=NOW)
    assert isinstance(found, Release)
    assert sorted(numbers(found.lease_ids)) == [0, 2]
    for state in set(S) - WANTED:
        for members_now in ([], members(L.ENDED), members(L.READY)):
            pool = replace(POOL, state=state)
            assert not isinstance(decide(pool, members_now, ended_why=None, now=NOW), Replace), state


def test_a_replacement_waits_for_stock_while_the_first_nodes_wait_no_longer_than_their_pool() -> None:
    assert POOL.lease_wait_seconds == POOL.wait_timeout_seconds
    assert READY.lease_wait_seconds == 7 * 24 * 3_600
