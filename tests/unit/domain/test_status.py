"""What a customer reads, over every lease state, machine state and step."""

import itertools
from datetime import timedelta
from uuid import UUID

from control_plane.domain.ids import MachineId
from control_plane.domain.lease import BILLED, LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.progress import CLAIM_STEPS, Step
from control_plane.domain.proof import Tier
from control_plane.domain.status import CONTACT_LOST_AFTER, Evidence, Phase, Status, project
from tests.support.clock import START


def _evidence(state: MachineState, step: Step, sighted_ago: timedelta | None) -> Evidence:
    return Evidence(
        machine_id=MachineId(UUID(int=1)),
        provider="fake",
        region="eu-central-1",
        state=state,
        step=step,
        sighted_at=None if sighted_ago is None else START - sighted_ago,
        address="192.0.2.7",
        ssh_port=22,
        host_key=None,
        mesh_address=None,
    )


SIGHTED = (None, timedelta(0), CONTACT_LOST_AFTER, CONTACT_LOST_AFTER + timedelta(microseconds=1))
EVIDENCE: list[Evidence | None] = [
    None,
    *(_evidence(*facts) for facts in itertools.product(MachineState, Step, SIGHTED)),
]


def _every() -> list[tuple[LeaseState, Evidence | None, Status]]:
    return [
        (state, evidence, project(state, evidence, demanded=demanded, attempts=attempts, now=START))
        for state, evidence, attempts, demanded in itertools.product(LeaseState, EVIDENCE, [0, 3], Tier)
    ]


def test_every_combination_reads_as_a_whole_sentence_with_sane_progress() -> None:
    for state, evidence, status in _every():
        assert status.message.endswith("."), (state, evidence)
        assert 0 <= status.steps_done <= status.steps_total
        assert len(Step) - 1 <= status.steps_total <= len(Step)


def test_nothing_but_a_ready_lease_ever_reads_ready() -> None:
    for state, evidence, status in _every():
        if status.phase in (Phase.READY, Phase.UNCONFIRMED):
            assert state in BILLED, evidence
        else:
            assert state not in BILLED, evidence


def test_ready_needs_fresh_evidence_and_shows_every_step_done() -> None:
    for state, evidence, status in _every():
        if state is not LeaseState.READY:
            continue
        fresh = (
            evidence is not None
            and evidence.sighted_at is not None
            and START - evidence.sighted_at <= CONTACT_LOST_AFTER
        )
        assert status.phase is (Phase.READY if fresh else Phase.UNCONFIRMED)
        if fresh:
            assert status.steps_done == status.steps_total


def test_a_lease_that_waits_shows_no_progress_of_the_attempt_before() -> None:
    for state, _, status in _every():
        if state is LeaseState.PLACING:
            assert (status.phase, status.steps_done, status.step) == (Phase.PENDING, 0, None)


def test_a_lease_that_tries_again_says_how_often_it_tried() -> None:
    assert (
        "Attempt 3 failed"
        in project(LeaseState.PLACING, None, demanded=Tier.LISTED, attempts=3, now=START).message
    )
    assert (
        "failed" not in project(LeaseState.PLACING, None, demanded=Tier.LISTED, attempts=0, now=START).message
    )


def _starting(step: Step, demanded: Tier = Tier.PROVEN) -> Status:
    evidence = _evidence(MachineState.BOOTSTRAPPING, step, timedelta(0))
    return project(LeaseState.STARTING, evidence, demanded=demanded, attempts=1, now=START)


def test_progress_counts_the_steps_in_their_order() -> None:
    assert [_starting(step).steps_done for step in Step] == list(range(1, len(Step) + 1))


def test_the_steps_of_the_claim_come_after_those_of_the_machine() -> None:
    assert set(list(Step)[-len(CLAIM_STEPS) :]) == CLAIM_STEPS


def test_the_message_says_what_is_done_next() -> None:
    messages = [_starting(step).message for step in Step]
    assert messages == [
        "Asking the provider for the machine.",
        "The provider accepted it; the machine boots.",
        "The machine runs; connecting.",
        "Connected; reading the GPUs.",
        "The GPUs read as sold; proving them.",
        "The GPUs are proven; joining your private network.",
        "On your private network; installing your SSH keys.",
        "Your SSH keys are installed.",
    ]
    unproven = _starting(Step.GPUS_VERIFIED, Tier.LISTED).message
    assert unproven == "The GPUs read as sold; joining your private network."


def test_every_phase_can_be_read() -> None:
    assert {status.phase for _, _, status in _every()} == set(Phase)


def test_the_end_is_only_called_confirmed_when_the_lease_has_ended() -> None:
    for state, _, status in _every():
        assert (status.phase is Phase.ENDED) == (state is LeaseState.ENDED)
        assert ("confirmed that no machine" in status.message) == (state is LeaseState.ENDED)


def test_a_sku_that_demands_no_proof_shows_no_step_for_it() -> None:
    ready = _evidence(MachineState.VERIFIED, Step.KEYS_INSTALLED, timedelta(0))
    for demanded, total in ((Tier.LISTED, len(Step) - 1), (Tier.PROVEN, len(Step))):
        status = project(LeaseState.READY, ready, demanded=demanded, attempts=1, now=START)
        assert (status.steps_done, status.steps_total) == (total, total)
