"""The two state machines, held to their laws over every pair of state and event."""

import itertools
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from control_plane.domain import lease, machine
from control_plane.domain.lease import END_REASONS, EndReason, LeaseEvent, LeaseState
from control_plane.domain.machine import MachineEvent, MachineState
from control_plane.domain.sighting import ListedState, concluded
from control_plane.domain.transitions import Ignored, Moved

L, LE = LeaseState, LeaseEvent
N, NE = MachineState, MachineEvent

LEASE_PAIRS = list(itertools.product(LeaseState, LeaseEvent))
INSTANCE_PAIRS = list(itertools.product(MachineState, MachineEvent))

CUSTOMER_SAYS = frozenset({LE.RELEASED})
"""Events that no loop can bring about."""
MACHINES: list[tuple[Mapping[Any, Any], type[StrEnum], type[StrEnum], StrEnum, frozenset[Any]]] = [
    (lease.NEXT, LeaseState, LeaseEvent, L.PLACING, lease.TERMINAL),
    (machine.NEXT, MachineState, MachineEvent, N.INTENDED, machine.TERMINAL),
]
both = pytest.mark.parametrize(
    ("table", "states", "events", "first", "terminal"), MACHINES, ids=["lease", "machine"]
)


def _reached(table: Mapping[Any, Any], first: StrEnum, without: frozenset[Any] = frozenset()) -> set[StrEnum]:
    seen, todo = {first}, [first]
    while todo:
        state = todo.pop()
        for (before, event), after in table.items():
            if before is state and event not in without and after not in seen:
                seen.add(after)
                todo.append(after)
    return seen


@both
def test_every_state_can_be_reached_and_every_event_is_used(
    table: Mapping[Any, Any], states: Any, events: Any, first: StrEnum, terminal: frozenset[Any]
) -> None:
    assert _reached(table, first) == set(states)
    assert {event for _, event in table} == set(events)


@both
def test_nothing_leaves_a_terminal_state_and_everything_else_can_be_left(
    table: Mapping[Any, Any], states: Any, events: Any, first: StrEnum, terminal: frozenset[Any]
) -> None:
    left = {before for before, _ in table}
    assert left == set(states) - terminal


@both
def test_from_every_state_the_end_can_be_reached(
    table: Mapping[Any, Any], states: Any, events: Any, first: StrEnum, terminal: frozenset[Any]
) -> None:
    for state in states:
        assert _reached(table, state) & terminal, state


@both
def test_no_move_leads_back_to_where_it_began(
    table: Mapping[Any, Any], states: Any, events: Any, first: StrEnum, terminal: frozenset[Any]
) -> None:
    for (before, event), after in table.items():
        assert before is not after, (before, event)


def test_every_state_of_a_lease_can_be_left_by_the_loops_alone() -> None:
    for state in set(LeaseState) - lease.TERMINAL:
        assert _reached(lease.NEXT, state, without=CUSTOMER_SAYS) >= lease.TERMINAL, state


def test_stepping_answers_the_table_or_ignores_for_every_pair_of_the_lease() -> None:
    for state, event in LEASE_PAIRS:
        after = lease.NEXT.get((state, event))
        wanted = Ignored(state, event) if after is None else Moved(state, event, after)
        assert lease.step(state, event) == wanted


def test_stepping_answers_the_table_or_ignores_for_every_pair_of_the_machine() -> None:
    for state, event in INSTANCE_PAIRS:
        after = machine.NEXT.get((state, event))
        wanted = Ignored(state, event) if after is None else Moved(state, event, after)
        assert machine.step(state, event) == wanted


# Machines: law 3.


def test_a_lease_that_may_hold_a_machine_only_ends_through_the_providers_word() -> None:
    for (state, event), after in lease.NEXT.items():
        if state in lease.MAY_HOLD_MACHINE and after in lease.TERMINAL:
            assert event is LE.MACHINES_GONE, (state, event)


def test_an_machine_that_may_have_a_machine_only_ends_through_the_providers_word() -> None:
    for (state, event), after in machine.NEXT.items():
        if state in machine.MAY_EXIST and after not in machine.MAY_EXIST:
            assert after is N.INTENDED or event in machine.PROVIDER_CONFIRMS, (state, event)


def test_only_an_intent_that_was_never_asked_for_closes_without_the_provider() -> None:
    closes = {(state, event) for (state, event), after in machine.NEXT.items() if after is N.GONE}
    assert {pair for pair in closes if pair[1] not in machine.PROVIDER_CONFIRMS} == {
        (N.INTENDED, NE.NEVER_ASKED)
    }


def test_only_the_ports_word_that_nothing_was_bought_takes_a_launch_back() -> None:
    back = {(state, event) for (state, event), after in machine.NEXT.items() if after is N.INTENDED}
    assert back == {(N.LAUNCHING, NE.PUT_BACK)}


def test_nothing_may_have_a_machine_before_it_was_asked_for() -> None:
    entered = {
        (state, event)
        for (state, event), after in machine.NEXT.items()
        if state not in machine.MAY_EXIST and after in machine.MAY_EXIST
    }
    assert entered == {(N.INTENDED, NE.ASKED)}


def test_what_is_ending_never_comes_back() -> None:
    for (state, _), after in machine.NEXT.items():
        if state is N.ENDING:
            assert after is N.GONE
    for (state_of_lease, _), ended in lease.NEXT.items():
        if state_of_lease is L.ENDING:
            assert ended is L.ENDED


def test_every_attempt_that_may_have_a_machine_can_be_let_go_by_its_lease() -> None:
    for state in machine.MAY_EXIST - {N.ENDING}:
        assert machine.NEXT[state, NE.END_WANTED] is N.ENDING


def test_every_wanted_attempt_but_a_verified_one_can_fail() -> None:
    for state in machine.WANTED - {N.INTENDED, N.VERIFIED}:
        assert machine.NEXT[state, NE.FAILED] is N.ENDING
    # Losing health is not ending (law 5): only a provider that no longer has it, or its own failed proof,
    # takes it from the customer.
    assert (N.VERIFIED, NE.FAILED) not in machine.NEXT
    assert {state for state, event in machine.NEXT if event is NE.DISPROVEN} == {N.VERIFIED}


# Bills: law 6.


def test_only_verification_begins_a_bill_and_every_way_out_of_it_ends_it_for_good() -> None:
    assert {L.READY} == lease.BILLED
    begins = {pair for pair, after in lease.NEXT.items() if after in lease.BILLED}
    assert begins == {(L.STARTING, LE.VERIFIED)}
    for (state, _), after in lease.NEXT.items():
        if state in lease.BILLED:
            assert not _reached(lease.NEXT, after) & lease.BILLED


def test_a_release_ends_a_live_lease_from_anywhere_and_is_ignored_afterwards() -> None:
    for state in LeaseState:
        moved = lease.step(state, LE.RELEASED)
        if state in lease.LIVE:
            assert isinstance(moved, Moved)
            assert moved.after is L.ENDING
        else:
            assert isinstance(moved, Ignored)


def test_only_what_was_billed_can_lose_its_machine_its_proof_or_its_funding() -> None:
    for event in (LE.UNFUNDED, LE.MACHINE_LOST, LE.PROOF_FAILED):
        assert {state for state, known in lease.NEXT if known is event} == {L.READY}


# The sets beside the tables.


def test_the_sets_of_a_lease_cover_its_states_and_agree() -> None:
    assert set(LeaseState) == lease.MAY_HOLD_MACHINE | lease.TERMINAL
    assert not lease.MAY_HOLD_MACHINE & lease.TERMINAL
    assert lease.BILLED < lease.LIVE < lease.MAY_HOLD_MACHINE
    assert set(LeaseState) == lease.LIVE | {L.ENDING, L.ENDED}


def test_the_sets_of_an_machine_cover_its_states_and_agree() -> None:
    assert set(MachineState) == machine.MAY_EXIST | {N.INTENDED} | machine.TERMINAL
    assert not machine.MAY_EXIST & machine.TERMINAL
    assert set(MachineState) == machine.WANTED | {N.ENDING} | machine.TERMINAL
    assert machine.SHOULD_BE_SIGHTED < machine.MAY_EXIST & machine.WANTED
    assert {N.GONE} == machine.TERMINAL


def test_every_way_into_ending_has_its_reason_and_every_reason_its_way() -> None:
    ways = {event for (_, event), after in lease.NEXT.items() if after is L.ENDING}
    assert ways == set(END_REASONS)
    assert set(END_REASONS.values()) == set(EndReason)


# What a sighting means.


@pytest.mark.parametrize("has_address", [True, False])
def test_no_sighting_concludes_what_the_machine_cannot_do(has_address: bool) -> None:
    for state, listed in itertools.product(machine.MAY_EXIST, ListedState):
        event = concluded(state, listed, has_address=has_address)
        assert event is None or isinstance(machine.step(state, event), Moved), (state, listed)


def test_only_an_explicit_word_says_that_a_machine_is_gone() -> None:
    for state, listed in itertools.product(machine.MAY_EXIST, ListedState):
        event = concluded(state, listed, has_address=True)
        if event in (NE.CONFIRMED_GONE, NE.VANISHED):
            assert listed is ListedState.GONE, (state, listed)


def test_a_verified_machine_is_left_alone_whatever_its_health() -> None:
    for listed in set(ListedState) - {ListedState.GONE}:
        assert concluded(N.VERIFIED, listed, has_address=True) is None


def test_a_lost_answer_is_found_whatever_became_of_the_machine() -> None:
    for listed in ListedState:
        assert concluded(N.LAUNCHING, listed, has_address=False) is NE.FOUND


def test_a_machine_is_reachable_only_when_it_runs_and_has_an_address() -> None:
    reachable = {
        (state, listed, has_address)
        for state, listed, has_address in itertools.product(
            machine.MAY_EXIST, ListedState, [True, False]
        )
        if concluded(state, listed, has_address=has_address) is NE.REACHABLE
    }
    assert reachable == {(N.BOOTING, ListedState.RUNNING, True)}


@pytest.mark.parametrize("listed", [ListedState.FAILED, ListedState.STOPPED])
def test_a_machine_that_fails_while_it_is_set_up_is_given_up(listed: ListedState) -> None:
    failing = {
        state
        for state in machine.MAY_EXIST
        if concluded(state, listed, has_address=True) is NE.FAILED
    }
    assert failing == {N.BOOTING, N.BOOTSTRAPPING}
