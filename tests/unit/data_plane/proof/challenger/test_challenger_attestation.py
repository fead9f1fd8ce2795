"""What a challenge makes of the attestations of a machine's GPUs: they can add, and two cards cannot be one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from data_plane.proof.challenger.challenger import ProofChallenger
from data_plane.proof.challenger.port import Occasion, Outcome, ProofReport
from data_plane.proof.protocol.messages import Evidence, Refused
from data_plane.proof.verifier.recompute import LocalVerifier
from tests.support import attestation
from tests.support.prover import (
    SIZES,
    HonestProver,
    ScriptedLine,
    breaking,
    changing,
    dropping,
    expected,
    gpu,
    identity,
    references,
)

CARDS = tuple(attestation.make(attestation.line(serial=serial)) for serial in (0x41, 0x42))
Attests = Callable[[int, bytes], tuple[bytes, bytes]]


def signing(at: int, nonce: bytes) -> tuple[bytes, bytes]:
    return attestation.Report(nonce).signed_by(CARDS[at]), CARDS[at].pem


async def challenged(attests: Attests, **line: Any) -> ProofReport:
    prover = HonestProver(identity(gpu(0), gpu(1)), attests)
    challenger = ProofChallenger(
        LocalVerifier(),
        references(),
        sizes=SIZES,
        roots={card.root for card in CARDS},
        now=lambda: attestation.NOW,
    )
    return await challenger.challenge(ScriptedLine(prover, **line), expected(2), Occasion.START)


def hints(report: ProofReport) -> set[str]:
    return {one.code for one in report.hints}


async def test_cards_that_sign_their_nonces_are_attested_and_the_evidence_names_them() -> None:
    report = await challenged(signing)
    assert (report.outcome, report.attested, report.hints) == (Outcome.PASSED, True, ())
    assert [one["device"] for one in report.evidence["attestation"]] == ["41", "42"]
    assert all("revocation" in one["unchecked"] for one in report.evidence["attestation"])


async def test_one_card_that_cannot_sign_leaves_the_machine_proven_and_not_attested() -> None:
    report = await challenged(lambda at, nonce: signing(at, nonce) if at == 0 else (b"", b""))
    assert (report.outcome, report.attested, report.hints) == (Outcome.PASSED, False, ())
    assert report.evidence["attestation"][1] == {"gpu": 1, "missing": "not_supported"}


async def test_a_card_that_poses_as_two_fails_the_proof() -> None:
    report = await challenged(lambda _, nonce: signing(0, nonce))
    assert (report.outcome, report.attested) == (Outcome.FAILED, False)
    assert {(one.code, one.gpu) for one in report.findings} == {("gpu_duplicate", 1)}


async def test_a_recorded_report_attests_nothing() -> None:
    old = {at: signing(at, bytes(32)) for at in (0, 1)}
    report = await challenged(lambda at, _: old[at])
    assert (report.outcome, report.attested, hints(report)) == (
        Outcome.PASSED,
        False,
        {"attestation_rejected"},
    )
    assert {one["code"] for one in report.evidence["attestation"]} == {"nonce"}


async def test_a_prover_that_says_nothing_of_attestation_is_proven_without() -> None:
    for bend in (dropping(Evidence), breaking(Evidence), changing(Evidence, _refused)):
        report = await challenged(signing, bend=bend)
        assert (report.outcome, report.attested) == (Outcome.PASSED, False)
        assert hints(report) == {"attestation_unanswered"}


async def test_an_attestation_that_is_no_message_fails_the_proof() -> None:
    report = await challenged(signing, bend=changing(Evidence, lambda one: replace(one, raw=b"\x00")))
    assert report.outcome is Outcome.FAILED
    assert {one.code for one in report.findings} == {"malformed"}


def _refused(answer: Any) -> Any:
    return replace(answer, message=Refused(None, "internal", "no"), blob=b"")
