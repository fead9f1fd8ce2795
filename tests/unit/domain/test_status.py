"""What a customer reads, over every lease state, machine state and step."""

import itertools
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from control_plane.domain.ids import MachineId, NodePoolId
from control_plane.domain.lease import BILLED, LeaseKind, LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.node import JoinStep
from control_plane.domain.progress import CLAIM_STEPS, Step, steps_for
from control_plane.domain.proof import Tier, challenged
from control_plane.domain.status import CONTACT_LOST_AFTER, Evidence, Status, Unconfirmed, Waiting, project
from tests.support.clock import START
from tests.support.values import a_lease


def _evidence(
    state: MachineState,
    step: Step,
    sighted_ago: timedelta | None,
    suspect_ago: timedelta | None = None,
    join_step: JoinStep | None = None,
) -> Evidence:
    return Evidence(
        machine_id=MachineId(UUID(int=1)),
        provider="fake",
        region="eu-central-1",
        state=state,
        step=step,
        sighted_at=None if sighted_ago is None else START - sighted_ago,
        suspect_since=None if suspect_ago is None else START - suspect_ago,
        address="192.0.2.7",
        ssh_port=22,
        host_key=None,
        mesh_address=None,
        join_step=join_step,
    )


OF_POOL = {
    "network_id": None,
    "network": None,
    "node_pool_id": NodePoolId(UUID(int=9)),
    "node_pool": "train",
    "cluster": "eu-1",
}


MINUTE = timedelta(minutes=1)
SIGHTED = (None, timedelta(0), CONTACT_LOST_AFTER, CONTACT_LOST_AFTER + timedelta(microseconds=1))
JOINS = (None, *JoinStep)
EVIDENCE: list[Evidence | None] = [
    None,
    *(_evidence(*facts) for facts in itertools.product(MachineState, Step, SIGHTED, (None, MINUTE))),
]


def _every() -> list[tuple[LeaseState, Evidence | None, Status]]:
    return [
        (state, evidence, project(a_lease(state=state, proof=demanded, attempts=attempts), evidence, START))
        for state, evidence, attempts, demanded in itertools.product(LeaseState, EVIDENCE, [0, 3], Tier)
    ]


def test_every_combination_reads_as_a_whole_sentence_with_sane_progress() -> None:
    for state, evidence, status in _every():
        assert status.message.endswith("."), (state, evidence)
        assert 0 <= status.steps_done <= status.steps_total
        assert len(Step) - 1 <= status.steps_total <= len(Step)


def test_a_machine_without_gpus_is_what_was_sold_once_it_is_connected_to() -> None:
    connected = _evidence(MachineState.VERIFIED, Step.CONNECTED, MINUTE)
    for kind, pool in ((LeaseKind.MACHINE, {}), (LeaseKind.NODE, OF_POOL)):
        lease = a_lease(state=LeaseState.STARTING, gpu_model=None, gpu_count=0, attempts=1, **pool)
        status = project(lease, connected, START)
        steps = steps_for(lease.proof, 0, kind)
        assert (status.steps_done, status.steps_total) == (4, len(steps))
        assert not {Step.GPUS_VERIFIED, Step.GPUS_PROVEN} & set(steps)
        assert "no GPUs to read" in status.message


def test_a_node_progresses_through_the_steps_of_its_machine_and_then_into_its_cluster() -> None:
    for demanded in Tier:
        lease = a_lease(state=LeaseState.STARTING, proof=demanded, attempts=1, **OF_POOL)
        of_machine = [step for step in steps_for(demanded, 8, LeaseKind.NODE) if isinstance(step, Step)]
        assert of_machine[-1] is (Step.GPUS_PROVEN if challenged(demanded) else Step.GPUS_VERIFIED)
        seen = [
            project(lease, _evidence(MachineState.VERIFIED, of_machine[-1], MINUTE, join_step=joined), START)
            for joined in JOINS
        ]
        assert [status.step for status in seen] == [of_machine[-1], *JoinStep]
        assert [status.steps_total - status.steps_done for status in seen] == list(
            reversed(range(len(JOINS)))
        )
        assert len({status.message for status in seen}) == len(JOINS)
        for status in seen:
            assert status.message.endswith("."), status
            assert "private network" not in status.message, "a node is in its cluster's overlay"


def test_the_state_that_is_read_is_the_state_of_the_lease() -> None:
    for state, evidence, status in _every():
        assert status.state is state, evidence


def test_a_ready_lease_is_unconfirmed_without_fresh_evidence_and_while_its_machine_is_suspect() -> None:
    for state, evidence, status in _every():
        fresh = (
            evidence is not None
            and evidence.sighted_at is not None
            and START - evidence.sighted_at <= CONTACT_LOST_AFTER
        )
        suspect = evidence is not None and evidence.suspect_since is not None
        assert (status.unconfirmed is not None) == (state in BILLED and (suspect or not fresh)), (
            state,
            evidence,
        )
        if state in BILLED:
            assert status.steps_done == status.steps_total
            assert status.message.startswith("Ready")
            assert (status.message == "Ready.") == (status.unconfirmed is None)


def test_an_unconfirmed_lease_says_since_when_and_why() -> None:
    ready = a_lease(state=LeaseState.READY, ready_at=START - 2 * MINUTE)
    late = CONTACT_LOST_AFTER + MINUTE
    cases = (
        (None, START - 2 * MINUTE, "not listed"),
        (_evidence(MachineState.VERIFIED, Step.CERTIFICATES_ACCEPTED, late), START - late, "not listed"),
        (
            _evidence(MachineState.VERIFIED, Step.CERTIFICATES_ACCEPTED, late, MINUTE),
            START - MINUTE,
            "last proof",
        ),
    )
    for evidence, since, why in cases:
        doubt = project(ready, evidence, START).unconfirmed
        assert isinstance(doubt, Unconfirmed), why
        assert doubt.since == since, why
        assert why in doubt.why, doubt


def test_a_lease_that_waits_for_stock_says_since_when_until_when_and_why() -> None:
    lease = a_lease(
        waiting_since=START + MINUTE, waiting_why="None of 2 offers can serve it now: 2 sold out."
    )
    status = project(lease, None, START + 2 * MINUTE)
    assert status.waiting == Waiting(START + MINUTE, START + 30 * MINUTE, lease.waiting_why or "")
    assert status.message == "Waiting for stock: None of 2 offers can serve it now: 2 sold out."
    again = project(replace(lease, attempts=2), None, START)
    assert again.message.startswith("Attempt 2 failed; waiting for stock: None")
    for state, _, status in _every():
        assert status.waiting is None, state


def test_a_lease_that_waits_shows_no_progress_of_the_attempt_before() -> None:
    for state, _, status in _every():
        if state is LeaseState.PLACING:
            assert (status.steps_done, status.step) == (0, None)


def test_a_lease_that_tries_again_says_how_often_it_tried() -> None:
    assert "Attempt 3 failed" in project(a_lease(attempts=3), None, START).message
    assert "failed" not in project(a_lease(), None, START).message


def _starting(step: Step, demanded: Tier = Tier.PROVEN) -> Status:
    evidence = _evidence(MachineState.BOOTSTRAPPING, step, timedelta(0))
    return project(a_lease(state=LeaseState.STARTING, proof=demanded, attempts=1), evidence, START)


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
        "On your private network; letting you log in.",
        "You can log in with a certificate.",
    ]
    unproven = _starting(Step.GPUS_VERIFIED, Tier.LISTED).message
    assert unproven == "The GPUs read as sold; joining your private network."


def test_the_end_is_only_called_confirmed_when_the_lease_has_ended() -> None:
    for state, _, status in _every():
        assert ("confirmed that no machine" in status.message) == (state is LeaseState.ENDED)


def test_a_sku_that_demands_no_proof_shows_no_step_for_it() -> None:
    ready = _evidence(MachineState.VERIFIED, Step.CERTIFICATES_ACCEPTED, timedelta(0))
    for demanded, total in ((Tier.LISTED, len(Step) - 1), (Tier.PROVEN, len(Step))):
        status = project(a_lease(state=LeaseState.READY, proof=demanded), ready, START)
        assert (status.steps_done, status.steps_total) == (total, total)
