"""The state machine of leases, held to its laws over every pair of state and event."""

import itertools

from control_plane.domain import lease
from control_plane.domain.lease import END_REASONS, NEXT, EndReason, LeaseEvent, LeaseState, step
from control_plane.domain.transitions import Ignored, Moved
from tests.support.state_tables import check_all_is_used, check_ends, check_moves, check_stepping, reached

S, E = LeaseState, LeaseEvent

PEOPLE_ONLY = lease.ENDED_BY_PEOPLE
"""Events that no loop can bring about."""


def test_every_state_can_be_reached_and_every_event_is_used() -> None:
    check_all_is_used(NEXT, S, E, S.PLACING)


def test_nothing_leaves_ended_and_from_every_other_state_it_can_be_reached() -> None:
    check_ends(NEXT, S, lease.TERMINAL)


def test_no_move_leads_back_to_where_it_began() -> None:
    check_moves(NEXT)


def test_stepping_answers_the_table_or_ignores_for_every_pair() -> None:
    check_stepping(NEXT, S, E, step)


def test_every_state_can_be_left_by_the_loops_alone() -> None:
    for state in set(S) - lease.TERMINAL:
        assert reached(NEXT, state, without=PEOPLE_ONLY) >= lease.TERMINAL, state


# Law 3: no lease is closed while a machine may live.

MAY_HOLD_MACHINE = {S.PLACING, S.STARTING, S.READY, S.ENDING}
"""Written out here, so that a change of the table's sets does not change what the law is tested on."""


def test_a_lease_that_may_hold_a_machine_only_ends_through_the_providers_word() -> None:
    for (state, event), after in NEXT.items():
        if state in MAY_HOLD_MACHINE and after in lease.TERMINAL:
            assert event is E.MACHINES_GONE, (state, event)


def test_a_lease_that_ends_never_comes_back() -> None:
    assert {after for (state, _), after in NEXT.items() if state is S.ENDING} == {S.ENDED}


# Law 6: bills.


def test_only_verification_begins_a_bill_and_every_way_out_of_it_but_a_replacement_ends_it_for_good() -> None:
    assert {S.READY} == lease.BILLED
    begins = {pair for pair, after in NEXT.items() if after in lease.BILLED}
    assert begins == {(S.STARTING, E.VERIFIED)}
    for (state, event), after in NEXT.items():
        if state in lease.BILLED and event is not E.REPLACING:
            assert not reached(NEXT, after) & lease.BILLED
    assert NEXT[S.READY, E.REPLACING] is S.PLACING, "it is verified again before it is billed again"


def test_people_end_a_live_lease_from_anywhere_and_are_ignored_afterwards() -> None:
    for state, event in itertools.product(S, PEOPLE_ONLY):
        moved = step(state, event)
        if state in lease.LIVE:
            assert isinstance(moved, Moved)
            assert moved.after is S.ENDING
        else:
            assert isinstance(moved, Ignored)


def test_only_what_was_billed_can_lose_its_machine_its_proof_or_its_funding() -> None:
    for event in (E.UNFUNDED, E.MACHINE_LOST, E.EVICTED, E.PREEMPTED, E.REPLACING, E.PROOF_FAILED):
        assert {state for state, known in NEXT if known is event} == {S.READY}


# The sets beside the table.


def test_the_sets_beside_the_table_cover_the_states_and_agree() -> None:
    assert set(S) == MAY_HOLD_MACHINE | lease.TERMINAL
    assert not MAY_HOLD_MACHINE & lease.TERMINAL
    assert lease.BILLED < lease.LIVE < MAY_HOLD_MACHINE
    assert set(S) == lease.LIVE | {S.ENDING, S.ENDED}


def test_every_way_into_ending_has_its_reason_and_every_reason_its_way() -> None:
    ways = {event for (_, event), after in NEXT.items() if after is S.ENDING}
    assert ways == set(END_REASONS)
    assert set(END_REASONS.values()) == set(EndReason)
