"""What one sighting means for a machine, over every pair of its state and the provider's word."""

import itertools

import pytest

from control_plane.domain import machine
from control_plane.domain.listed_state import ListedState
from control_plane.domain.machine import MachineEvent, MachineState
from control_plane.domain.sighting import NOT_RUNNING, concluded
from control_plane.domain.transitions import Moved

S, E = MachineState, MachineEvent


@pytest.mark.parametrize("has_address", [True, False])
def test_no_sighting_concludes_what_the_machine_cannot_do(has_address: bool) -> None:
    for state, listed in itertools.product(machine.MAY_EXIST, ListedState):
        event = concluded(state, listed, has_address=has_address)
        assert event is None or isinstance(machine.step(state, event), Moved), (state, listed)


def test_only_an_explicit_word_says_that_a_machine_is_gone() -> None:
    for state, listed in itertools.product(machine.MAY_EXIST, ListedState):
        event = concluded(state, listed, has_address=True)
        if event in (E.CONFIRMED_GONE, E.VANISHED):
            assert listed is ListedState.GONE, (state, listed)


def test_a_verified_machine_is_left_alone_unless_it_is_listed_as_failed_stopped_or_gone() -> None:
    given_up = NOT_RUNNING | {ListedState.SOLD_OUT}
    for listed in set(ListedState) - given_up - {ListedState.GONE}:
        assert concluded(S.VERIFIED, listed, has_address=True) is None


def test_a_word_that_nobody_knows_concludes_nothing_but_that_a_lost_launch_is_found() -> None:
    for state in machine.MAY_EXIST - {S.LAUNCHING}:
        assert concluded(state, ListedState.UNKNOWN, has_address=True) is None, state


def test_a_lost_answer_is_found_whatever_became_of_the_machine() -> None:
    for listed in ListedState:
        assert concluded(S.LAUNCHING, listed, has_address=False) is E.FOUND


def test_a_machine_is_reachable_only_when_it_runs_and_has_an_address() -> None:
    reachable = {
        (state, listed, has_address)
        for state, listed, has_address in itertools.product(machine.MAY_EXIST, ListedState, [True, False])
        if concluded(state, listed, has_address=has_address) is E.REACHABLE
    }
    assert reachable == {(S.BOOTING, ListedState.RUNNING, True)}


@pytest.mark.parametrize("listed", [ListedState.FAILED, ListedState.STOPPED, ListedState.SOLD_OUT])
def test_a_machine_that_its_provider_lists_as_failed_or_stopped_may_be_given_up(listed: ListedState) -> None:
    failing = {state for state in machine.MAY_EXIST if concluded(state, listed, has_address=True) is E.FAILED}
    assert failing == {S.BOOTING, S.BOOTSTRAPPING, S.VERIFIED}
