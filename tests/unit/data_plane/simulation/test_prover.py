"""Simulated provers before the real challenger."""

from dataclasses import replace

import pytest

from data_plane.proof.challenger.challenger import ProofChallenger
from data_plane.proof.challenger.port import Expected, Occasion, Outcome
from data_plane.proof.challenger.reference import Basis, References
from data_plane.proof.prover.emulation.cards import CARDS
from data_plane.proof.prover.emulation.machine import Claim
from data_plane.proof.verifier.recompute import LocalVerifier, one_blas_thread
from data_plane.simulation.prover import simulated_prover
from tests.support.cheats.miniature import Miniature
from tests.support.cheats.posing import posing_as_cuda

SEED, NONCE = bytes(range(32)), bytes(range(100, 116))
H100 = CARDS["h100-sxm-80gb"]
CLAIM = Claim(H100.name, "GPU-1", H100.memory_mib)


@pytest.fixture(autouse=True)
def small_products_on_one_thread() -> None:
    one_blas_thread()


def expected(count: int) -> Expected:
    return Expected("h100-sxm-80gb", count, frozenset({H100.name}), (H100.memory_mib,), 2)


async def test_a_simulated_prover_answers_everything_and_counts_for_nothing() -> None:
    challenger = ProofChallenger(LocalVerifier(), References())
    report = await challenger.challenge(simulated_prover([CLAIM]), expected(1), Occasion.START)
    assert report.outcome is Outcome.EMULATED, report.findings
    assert report.proven_bytes == ()


@pytest.mark.parametrize("basis", [Basis.MEASURED, Basis.ESTIMATED])
async def test_an_emulation_that_says_cuda_is_proven_in_virtual_time(basis: Basis) -> None:
    miniature = Miniature()
    scale = miniature.scale("h100-sxm-80gb")
    machine = posing_as_cuda([CLAIM, replace(CLAIM, uuid="GPU-2")], scale=scale, seed=3)
    challenger = ProofChallenger(LocalVerifier(), miniature.references(basis), sizes=miniature.sizes)
    report = await challenger.challenge(machine, expected(2), Occasion.START)
    assert report.outcome is Outcome.PASSED, report.findings
    walked = [rate.seconds for rate in report.rates if rate.phase == "walk"]
    assert walked == pytest.approx([1.24, 1.24], rel=0.05)


async def test_an_emulation_with_the_speed_of_another_card_is_caught() -> None:
    miniature = Miniature()
    machine = posing_as_cuda([CLAIM], card=CARDS["a100-sxm-80gb"], scale=miniature.scale("h100-sxm-80gb"))
    challenger = ProofChallenger(LocalVerifier(), miniature.references(), sizes=miniature.sizes)
    report = await challenger.challenge(machine, expected(1), Occasion.START)
    assert {finding.code for finding in report.findings} == {"too_slow"}
