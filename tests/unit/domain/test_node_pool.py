"""Node pools: the laws of their state machine, and what follows for the leases of their nodes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.cluster import ClusterState
from control_plane.domain.deadline import LOOKED_AT_WITHIN, TRIED_FIRST
from control_plane.domain.ids import ClusterId, EnvironmentId, LeaseId, NodePoolId, OrganizationId, ProjectId
from control_plane.domain.lease import EndReason, LeaseState
from control_plane.domain.node_pool import (
    LIVE,
    NEXT,
    SERVED,
    TERMINAL,
    WANTED,
    BackOff,
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
    ended_why,
    step,
    to_release,
    to_release_when_scaled,
)
from control_plane.domain.organization import OPEN, OrganizationState
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


def failed(
    count: int, *, end_reason: EndReason = EndReason.NO_CAPACITY, served: timedelta | None = None
) -> list[Member]:
    """Leases that ended now, one a second before the other."""
    return [
        Member(
            LeaseId(UUID(int=100 + number)),
            L.ENDED,
            NOW - timedelta(days=2),
            ready_at=None if served is None else NOW - timedelta(seconds=number) - served,
            let_go_at=NOW - timedelta(seconds=number),
            end_reason=end_reason,
        )
        for number in range(count)
    ]


def test_a_pool_whose_leases_keep_failing_replaces_them_ever_later_and_says_why() -> None:
    for reason in (EndReason.NO_CAPACITY, EndReason.MACHINE_LOST, EndReason.PROOF_FAILED):
        assert decide(READY, failed(1, end_reason=reason), ended_why=None, now=NOW) == Replace(2)
        waits = []
        for count in range(2, 12):
            found = decide(READY, failed(count, end_reason=reason), ended_why=None, now=NOW)
            assert isinstance(found, BackOff), count
            assert f"{count} leases" in found.why
            waits.append(int((found.until - NOW).total_seconds()))
            assert decide(READY, failed(count), ended_why=None, now=found.until) == Replace(2)
        assert waits[:4] == [60, 120, 240, 480]
        assert waits[-1] == 3_600


def test_what_somebody_ended_what_served_long_and_what_is_long_ago_is_no_failure() -> None:
    for harmless in (
        failed(9, end_reason=EndReason.RELEASED),
        failed(9, end_reason=EndReason.UNFUNDED),
        failed(9, end_reason=EndReason.MACHINE_LOST, served=SERVED),
        [replace(each, let_go_at=NOW - timedelta(days=1, seconds=1)) for each in failed(9)],
    ):
        assert decide(READY, harmless, ended_why=None, now=NOW) == Replace(2)
    early = failed(2, end_reason=EndReason.MACHINE_LOST, served=SERVED - timedelta(seconds=1))
    assert isinstance(decide(READY, early, ended_why=None, now=NOW), BackOff)


def test_pools_go_on_in_clusters_that_are_or_will_be_ready_while_their_organization_is_open() -> None:
    for organization in OrganizationState:
        for cluster in ClusterState:
            why = ended_why(organization, "eu-1", cluster)
            goes_on = organization in OPEN and cluster in {ClusterState.BUILDING, ClusterState.READY}
            assert (why is None) is goes_on, (organization, cluster)
    assert (
        ended_why(OrganizationState.SUSPENDED, "eu-1", ClusterState.GONE)
        == "the cluster eu-1 is being deleted"
    )
    assert ended_why(OrganizationState.CLOSED, "eu-1", ClusterState.READY) == "the organization is closed"


def test_what_has_run_longest_goes_last() -> None:
    states = (L.READY, L.READY, L.STARTING, L.STARTING, L.PLACING, L.ENDING, L.PLACING)
    order = [6, 4, 3, 2, 1, 0]
    for left in range(7):
        assert numbers(to_release(left, members(*states))) == order[: 6 - left], left
    assert decide(READY, members(L.READY, L.READY, L.READY), ended_why=None, now=NOW) == Release(
        (LeaseId(UUID(int=2)),)
    )


def test_a_node_that_leaves_later_is_replaced_before_and_is_no_surplus_when_another_one_is_there() -> None:
    first, second, third = members(L.READY, L.READY, L.READY)
    first = replace(first, is_leaving_later=True)
    assert decide(READY, [first, second], ended_why=None, now=NOW) == Replace(1)
    for state in (L.PLACING, L.STARTING, L.READY):
        assert decide(READY, [first, second, replace(third, state=state)], ended_why=None, now=NOW) is None
    again = [replace(first, is_leaving_later=False), second, third]
    assert decide(READY, again, ended_why=None, now=NOW) == Release((third.lease_id,)), "it recovered"


def test_whoever_wants_fewer_nodes_stops_paying_for_one_that_leaves_later_once_enough_others_are_ready() -> (
    None
):
    first, second, third = members(L.READY, L.READY, L.STARTING)
    first = replace(first, is_leaving_later=True)
    assert numbers(to_release_when_scaled(1, [first, second])) == [0]
    assert numbers(to_release_when_scaled(1, [first, second, third])) == [2, 0]
    starting = replace(second, state=L.STARTING)
    assert numbers(to_release_when_scaled(1, [first, starting, third])) == [2], "nothing else is ready"
    assert numbers(to_release_when_scaled(1, [second, third])) == [2]


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
