"""When a failure applies to a machine: never twice, never to a machine that a customer is on (law 5)."""

import itertools

import pytest

from control_plane.domain.claim import Claim
from control_plane.domain.failure import FailReason
from control_plane.domain.machine import MachineEvent, MachineFailure, MachineState, step
from control_plane.domain.machine_failure import move_of
from control_plane.domain.transitions import Moved
from tests.support.clock import START
from tests.support.values import a_claim, a_machine

S, E = MachineState, MachineEvent
FAILED = MachineFailure(E.FAILED, FailReason.SETUP_FAILED, "a test")
WAITING, ADMITTED = a_claim(1), a_claim(2, admitted_at=START)


def test_a_failure_moves_a_machine_exactly_where_the_table_does() -> None:
    for state, event in itertools.product(S, E):
        of = a_machine(state=state, provider_ref=None)
        move = move_of(of, [WAITING], MachineFailure(event, FailReason.VANISHED, "a test"))
        moved = step(state, event)
        assert (move.moved if move else None) == (moved if isinstance(moved, Moved) else None), (state, event)


def test_a_move_carries_why_and_what_is_the_evidence_of_an_end() -> None:
    failure = MachineFailure(E.REJECTED, FailReason.NO_CAPACITY, "sold out", gone_evidence="refused")
    move = move_of(a_machine(state=S.LAUNCHING, provider_ref=None, generation=3), [], failure)
    assert move is not None
    assert (move.seen, move.why, move.fail_reason, move.gone_evidence) == (
        3,
        "sold out",
        FailReason.NO_CAPACITY,
        "refused",
    )


@pytest.mark.parametrize("state", [S.LAUNCHING, S.TERMINATING])
def test_a_refused_launch_closes_no_record_whose_machine_was_listed(state: MachineState) -> None:
    refused = MachineFailure(E.REJECTED, FailReason.NO_CAPACITY, "a test", gone_evidence="refused")
    assert move_of(a_machine(state=state), [], refused) is None
    assert move_of(a_machine(state=state, provider_ref=None), [], refused) is not None


@pytest.mark.parametrize(
    ("claims", "fails"),
    [([], False), ([WAITING], True), ([ADMITTED], False), ([WAITING, ADMITTED], False)],
)
def test_a_verified_machine_fails_only_while_everybody_on_it_waits(claims: list[Claim], fails: bool) -> None:
    assert (move_of(a_machine(state=S.VERIFIED), claims, FAILED) is not None) is fails


@pytest.mark.parametrize(
    ("claims", "fails"),
    [([], True), ([WAITING], True), ([ADMITTED], False), ([WAITING, ADMITTED], False)],
)
def test_a_verified_machine_that_its_provider_calls_failed_is_kept_only_for_a_customer_who_is_on_it(
    claims: list[Claim], fails: bool
) -> None:
    listed = MachineFailure(E.FAILED, FailReason.PROVIDER_REPORTED_FAILURE, "a test")
    assert (move_of(a_machine(state=S.VERIFIED), claims, listed) is not None) is fails


@pytest.mark.parametrize("state", [S.LAUNCHING, S.BOOTING, S.BOOTSTRAPPING])
def test_a_machine_that_is_set_up_for_nobody_can_fail_too(state: MachineState) -> None:
    assert move_of(a_machine(state=state), [], FAILED) is not None


@pytest.mark.parametrize("event", [E.VANISHED, E.DISPROVEN])
def test_a_machine_that_is_lost_or_disproven_goes_whoever_is_on_it(event: MachineEvent) -> None:
    failure = MachineFailure(event, FailReason.VANISHED, "a test")
    assert move_of(a_machine(state=S.VERIFIED), [ADMITTED], failure) is not None
