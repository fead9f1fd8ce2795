"""The state machine of machines, held to its laws over every pair of state and event, and how machines are released."""

from dataclasses import replace
from datetime import timedelta

import pytest

from control_plane.domain import machine
from control_plane.domain.machine import (
    ERASED_WITHIN,
    NEXT,
    MachineEvent,
    MachineMove,
    MachineState,
    Purpose,
    release,
    step,
)
from control_plane.domain.proof import Record, Tier, challenged
from tests.support.clock import START
from tests.support.state_tables import check_all_is_used, check_ends, check_moves, check_stepping
from tests.support.values import a_machine

S, E = MachineState, MachineEvent


def test_every_state_can_be_reached_and_every_event_is_used() -> None:
    check_all_is_used(NEXT, S, E, S.INTENDED)


def test_nothing_leaves_gone_and_from_every_other_state_it_can_be_reached() -> None:
    check_ends(NEXT, S, machine.TERMINAL)


def test_no_move_leads_back_to_where_it_began() -> None:
    check_moves(NEXT)


def test_stepping_answers_the_table_or_ignores_for_every_pair() -> None:
    check_stepping(NEXT, S, E, step)


# Law 3: no record is closed while a machine may live.


def test_a_machine_that_may_exist_only_ends_through_the_providers_word() -> None:
    for (state, event), after in NEXT.items():
        if state in machine.MAY_EXIST and after not in machine.MAY_EXIST:
            assert after is S.INTENDED or event in machine.PROVIDER_CONFIRMS, (state, event)


def test_only_an_intent_that_was_never_asked_for_closes_without_the_provider() -> None:
    closes = {(state, event) for (state, event), after in NEXT.items() if after is S.GONE}
    assert {pair for pair in closes if pair[1] not in machine.PROVIDER_CONFIRMS} == {
        (S.INTENDED, E.NEVER_ASKED)
    }


def test_only_the_ports_word_that_nothing_was_bought_takes_a_launch_back() -> None:
    back = {(state, event) for (state, event), after in NEXT.items() if after is S.INTENDED}
    assert back == {(S.LAUNCHING, E.PUT_BACK)}


def test_nothing_may_exist_before_it_was_asked_for() -> None:
    entered = {
        (state, event)
        for (state, event), after in NEXT.items()
        if state not in machine.MAY_EXIST and after in machine.MAY_EXIST
    }
    assert entered == {(S.INTENDED, E.ASKED)}


def test_a_machine_that_has_to_go_never_comes_back() -> None:
    assert {after for (state, _), after in NEXT.items() if state is S.TERMINATING} == {S.GONE}


def test_every_machine_that_may_exist_can_be_released() -> None:
    for state in machine.MAY_EXIST - {S.TERMINATING}:
        assert NEXT[state, E.RELEASED] is S.TERMINATING


def test_every_wanted_machine_that_was_asked_for_can_fail() -> None:
    for state in machine.WANTED - {S.INTENDED}:
        assert NEXT[state, E.FAILED] is S.TERMINATING


def test_only_a_verified_machine_can_be_disproven() -> None:
    assert {state for state, event in NEXT if event is E.DISPROVEN} == {S.VERIFIED}


def test_the_sets_beside_the_table_cover_the_states_and_agree() -> None:
    assert set(S) == machine.MAY_EXIST | {S.INTENDED} | machine.TERMINAL
    assert not machine.MAY_EXIST & machine.TERMINAL
    assert set(S) == machine.WANTED | {S.TERMINATING} | machine.TERMINAL
    assert machine.SHOULD_BE_SIGHTED < machine.MAY_EXIST & machine.WANTED
    assert {S.GONE} == machine.TERMINAL


# Released: what becomes of a machine after its claim.


def released(
    *,
    purpose: Purpose = Purpose.LEASE,
    state: MachineState = S.VERIFIED,
    proof: Tier = Tier.LISTED,
    admitted: bool,
) -> MachineMove | None:
    of = a_machine(purpose=purpose, state=state, proof=proof)
    move = release(of, admitted=admitted, why="its claim ended", now=START)
    assert move is None or (move.id, move.seen, move.why) == (of.id, of.generation, "its claim ended")
    return move


def test_a_node_stays_whatever_its_state() -> None:
    for state in S:
        assert released(purpose=Purpose.NODE, state=state, admitted=True) is None


@pytest.mark.parametrize("purpose", [Purpose.LEASE, Purpose.POOL])
def test_any_other_machine_goes_from_every_wanted_state_and_is_left_alone_otherwise(purpose: Purpose) -> None:
    for state in S:
        move = released(purpose=purpose, state=state, admitted=False)
        assert (move is not None) is (state in machine.WANTED), state
        if move is not None:
            after = S.GONE if state is S.INTENDED else S.TERMINATING
            assert move.moved.after is after
            assert (move.gone_evidence is not None) is (after is S.GONE), "closed without evidence"


def test_the_record_of_a_dropped_order_says_whether_its_provider_was_ever_asked() -> None:
    for asked_at, evidence in (
        (None, "nothing was asked of the provider"),
        (START, "every request was put back"),
    ):
        order = replace(a_machine(state=S.INTENDED), asked_at=asked_at)
        move = release(order, admitted=False, why="its claim ended", now=START)
        assert move is not None
        assert (move.moved.event, move.gone_evidence) == (E.NEVER_ASKED, evidence)


@pytest.mark.parametrize("tier", list(Tier))
@pytest.mark.parametrize("admitted", [True, False])
def test_only_what_a_customer_was_on_and_can_prove_it_waits_for_its_memory_to_be_overwritten(
    tier: Tier, admitted: bool
) -> None:
    move = released(proof=tier, admitted=admitted)
    assert move is not None
    waits = admitted and challenged(tier)
    assert move.erasing_until == (START + ERASED_WITHIN if waits else None)


# A machine's record of proofs.


def test_a_machines_record_is_what_its_row_says() -> None:
    record = Record(3, START, START + timedelta(hours=1), True, 1, 2, START + timedelta(hours=2))
    kept = replace(
        a_machine(),
        passes=record.passes,
        first_passed_at=record.first_passed_at,
        last_passed_at=record.last_passed_at,
        attested=record.attested,
        failed=record.failed,
        unanswered=record.unanswered,
        last_challenged_at=record.last_at,
    )
    assert kept.record == record
    assert a_machine().record == Record()
