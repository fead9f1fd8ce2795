"""The state machine of nodes, and the order of their steps."""

from itertools import product

from control_plane.domain.failure import FailReason
from control_plane.domain.node import (
    IN_CLUSTER,
    NEXT,
    TERMINAL,
    JoinStep,
    LeaveReason,
    LeaveStep,
    NodeEvent,
    NodeState,
    leaving,
    may_open,
    next_join_step,
    next_leave_step,
    reason_to_leave,
    step,
)
from tests.support.state_tables import check_all_is_used, check_ends, check_moves, check_stepping

S, E = NodeState, NodeEvent


def test_the_table_of_nodes_keeps_the_laws_of_every_state_table() -> None:
    check_all_is_used(NEXT, S, E, S.JOINING)
    check_ends(NEXT, S, TERMINAL)
    check_moves(NEXT)
    check_stepping(NEXT, S, E, step)
    assert set(S) - TERMINAL == IN_CLUSTER


def test_a_node_is_gone_only_after_it_left() -> None:
    assert {pair for pair, after in NEXT.items() if after is S.GONE} == {(S.LEAVING, E.LEFT)}


def test_joining_goes_on_at_the_first_step_without_evidence() -> None:
    steps = list(JoinStep)
    for place, expected in enumerate(steps):
        assert next_join_step(steps[:place]) is expected
    assert next_join_step(steps) is None


def test_a_node_is_opened_last() -> None:
    assert list(JoinStep)[-1] is JoinStep.OPENED


def test_leaving_takes_every_step_that_removes_something_whatever_the_reason() -> None:
    removing = {LeaveStep.DELETED, LeaveStep.CUT_OFF, LeaveStep.CLEANED}
    for reason in LeaveReason:
        steps = leaving(reason)
        assert removing <= set(steps), reason
        assert steps[-1] is LeaveStep.CLEANED, reason
        for place, expected in enumerate(steps):
            assert next_leave_step(reason, steps[:place]) is expected
        assert next_leave_step(reason, steps) is None


def test_a_node_that_nobody_trusts_or_reaches_is_cut_off_before_anything_else() -> None:
    for reason in (LeaveReason.HOSTILE, LeaveReason.LOST):
        assert leaving(reason)[0] is LeaveStep.CUT_OFF


def test_pods_have_time_to_go_before_an_orderly_node_is_deleted() -> None:
    for reason, later in product(
        (LeaveReason.LEASE_ENDED, LeaveReason.FAILED, LeaveReason.TAKEN_AWAY),
        (LeaveStep.DELETED, LeaveStep.CUT_OFF),
    ):
        steps = leaving(reason)
        assert steps.index(LeaveStep.CORDONED) < steps.index(LeaveStep.DRAINED) < steps.index(later)


def test_a_pool_is_opened_all_or_none_until_it_was_ready_once() -> None:
    assert not may_open(pool_was_ready=False, wanted=3, healthy=2)
    assert may_open(pool_was_ready=False, wanted=3, healthy=3)
    assert may_open(pool_was_ready=True, wanted=3, healthy=1)


def test_what_became_of_the_machine_says_why_its_node_leaves() -> None:
    for fail_reason, gone, expected in (
        (None, False, LeaveReason.LEASE_ENDED),
        (None, True, LeaveReason.LOST),
        (FailReason.VANISHED, True, LeaveReason.LOST),
        (FailReason.NODE_LOST, False, LeaveReason.LOST),
        (FailReason.UNHEALTHY, False, LeaveReason.TAKEN_AWAY),
        (FailReason.UNHEALTHY, True, LeaveReason.LOST),
        (FailReason.NODE_HOSTILE, False, LeaveReason.HOSTILE),
        (FailReason.PROOF_FAILED, False, LeaveReason.HOSTILE),
    ):
        assert reason_to_leave(fail_reason, machine_is_gone=gone) is expected, fail_reason
