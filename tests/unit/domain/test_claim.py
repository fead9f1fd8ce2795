"""Who may claim which machine, and until when a lease is billed whose claim ends."""

import itertools
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from control_plane.domain.claim import release_bound, use_ended_at, why_not
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.machine import MachineEvent, MachineFailure, MachineState, Purpose
from control_plane.domain.metering import EVIDENCE_LASTS
from control_plane.domain.proof import FRESH_FOR, STRIKES_MAX, Tier
from tests.support.clock import START
from tests.support.values import a_lease, a_machine

LEASE = a_lease()
POOL = a_machine(purpose=Purpose.POOL)
NODE = a_machine(purpose=Purpose.NODE, gpu_count=8)
CLAIMABLE = {
    (Purpose.LEASE, MachineState.INTENDED),
    (Purpose.POOL, MachineState.VERIFIED),
    (Purpose.NODE, MachineState.VERIFIED),
}


def test_a_machine_can_be_claimed_in_one_state_only() -> None:
    for purpose in Purpose:
        slot = 1 if purpose is Purpose.NODE else None
        for state in MachineState:
            refusal = why_not(LEASE, a_machine(purpose=purpose, state=state), [], slot, START)
            assert (refusal is None) is ((purpose, state) in CLAIMABLE), (purpose, state)
            assert refusal is None or state in refusal, (purpose, state)


def test_a_node_is_claimed_by_slots_and_nothing_else_has_any() -> None:
    assert why_not(LEASE, NODE, [], None, START) == "a node is claimed by slots"
    assert why_not(LEASE, POOL, [], 1, START) == "only a node has slots"


def test_a_machine_is_claimed_once_and_each_slot_of_a_node_once() -> None:
    assert why_not(LEASE, POOL, [None], None, START) == "the machine is taken"
    assert why_not(LEASE, NODE, [1, 2], 2, START) == "slot 2 is taken"
    assert why_not(LEASE, NODE, [1, 2], 3, START) is None


def test_a_whole_machine_has_exactly_the_gpus_that_were_sold() -> None:
    for count in (2, 8):
        assert "the lease is for 1 x h100" in str(
            why_not(LEASE, replace(POOL, gpu_count=count), [], None, START)
        )
    other = replace(POOL, gpu_model=GpuModel.H100_PCIE_80GB)
    assert "1 x h100-pcie-80gb" in str(why_not(LEASE, other, [], None, START))


def test_a_machine_without_gpus_is_claimed_only_by_the_lease_that_it_was_ordered_for() -> None:
    lease = replace(LEASE, gpu_model=None, gpu_count=0)
    ordered = replace(POOL, gpu_model=None, gpu_count=0)
    assert "only by the lease that it was ordered for" in str(why_not(lease, ordered, [], None, START))
    ordered = replace(ordered, purpose=Purpose.LEASE, state=MachineState.INTENDED)
    assert why_not(lease, ordered, [], None, START) is None
    assert "no GPUs, and the lease is for 1 x" in str(why_not(LEASE, ordered, [], None, START))


def test_a_slot_lies_on_a_node_of_the_same_gpus_that_has_enough_of_them() -> None:
    assert why_not(replace(LEASE, gpu_count=8), NODE, [], 1, START) is None
    assert "8 x h100" in str(why_not(replace(LEASE, gpu_count=9), NODE, [], 1, START))
    assert why_not(replace(LEASE, gpu_model=GpuModel.L4_24GB), NODE, [], 1, START) is not None


def test_a_machine_has_to_prove_at_least_what_was_sold() -> None:
    order = list(Tier)
    for sold, proves in itertools.product(Tier, Tier):
        machine = a_machine(purpose=Purpose.LEASE, state=MachineState.INTENDED, proof=proves)
        refusal = why_not(replace(LEASE, proof=sold), machine, [], None, START)
        assert (refusal is None) is (order.index(proves) >= order.index(sold)), (sold, proves)


def test_a_machine_that_waited_is_claimed_as_what_it_has_proven_lately() -> None:
    proven = replace(LEASE, proof=Tier.PROVEN)
    machine = replace(POOL, proof=Tier.PROVEN, passes=1, first_passed_at=START, last_passed_at=START)
    assert why_not(proven, machine, [], None, START) is None
    stale = START + FRESH_FOR + timedelta(microseconds=1)
    assert why_not(proven, machine, [], None, stale) == "the machine is listed, and proven was sold"
    assert why_not(LEASE, machine, [], None, stale) is None


def test_a_machine_against_which_its_proofs_speak_is_given_to_nobody() -> None:
    for machine, slot in ((POOL, None), (NODE, 1)):
        assert "suspect" in str(why_not(LEASE, replace(machine, suspect_since=START), [], slot, START))


# The end of the bill.

MINUTE = timedelta(minutes=1)
READY, SIGHTED, SUSPECT, NOW = START, START + 40 * MINUTE, START + 20 * MINUTE, START + 60 * MINUTE
MACHINE = a_machine(sighted_at=SIGHTED)
DOUBTED = replace(MACHINE, suspect_since=SUSPECT, failed=STRIKES_MAX - 1)
DISPROVEN = replace(MACHINE, suspect_since=SUSPECT, failed=STRIKES_MAX)


def _failure(event: MachineEvent, since: datetime | None = None) -> MachineFailure:
    return MachineFailure(event, FailReason.VANISHED, "a test", failed_since=since)


def test_a_release_is_billed_at_most_until_a_minute_after_the_machine_was_listed() -> None:
    assert release_bound(READY, MACHINE).until == SIGHTED + EVIDENCE_LASTS
    for before in (None, READY - MINUTE):
        assert release_bound(READY, replace(MACHINE, sighted_at=before)).until == READY + EVIDENCE_LASTS


def test_one_failed_proof_takes_nothing_off_a_bill_and_a_confirmed_one_does() -> None:
    assert use_ended_at(READY, DOUBTED, NOW) == NOW
    assert use_ended_at(READY, DISPROVEN, NOW) == SUSPECT


@pytest.mark.parametrize("event", [MachineEvent.VANISHED, MachineEvent.FAILED])
def test_a_lost_machine_is_paid_for_through_its_last_sighting(event: MachineEvent) -> None:
    assert use_ended_at(READY, MACHINE, NOW, _failure(event)) == SIGHTED
    assert use_ended_at(READY, replace(MACHINE, sighted_at=None), NOW, _failure(event)) == READY
    assert use_ended_at(READY, DISPROVEN, NOW, _failure(event)) == SUSPECT


def test_a_disproven_machine_is_paid_for_until_its_proofs_spoke_against_it() -> None:
    disproven = _failure(MachineEvent.DISPROVEN, SIGHTED)
    assert use_ended_at(READY, MACHINE, NOW, disproven) == SIGHTED
    assert use_ended_at(READY, DISPROVEN, NOW, disproven) == SUSPECT


def test_no_bill_ends_before_it_begins_nor_in_the_future() -> None:
    early = READY - MINUTE
    for machine in (replace(MACHINE, sighted_at=early), replace(DISPROVEN, suspect_since=early)):
        assert use_ended_at(READY, machine, NOW, _failure(MachineEvent.VANISHED)) == READY
    late = replace(MACHINE, sighted_at=NOW + MINUTE)
    assert use_ended_at(READY, late, NOW, _failure(MachineEvent.VANISHED)) == NOW


def test_nothing_is_billed_after_the_moment_of_the_auto_release_however_the_claim_ends() -> None:
    late = NOW - timedelta(minutes=1)
    assert late > SIGHTED
    assert use_ended_at(READY, MACHINE, NOW, release_at=late) == late
    assert use_ended_at(READY, DISPROVEN, NOW, release_at=late) == SUSPECT
    assert use_ended_at(READY, MACHINE, NOW, _failure(MachineEvent.VANISHED), release_at=late) == SIGHTED
    assert use_ended_at(READY, MACHINE, NOW, release_at=NOW + timedelta(hours=1)) == NOW
