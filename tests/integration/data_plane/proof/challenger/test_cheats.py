"""Every cheat we know against the real challenger and verifier, in miniature and on a virtual clock."""

import math
import random
from dataclasses import replace

import pytest

from data_plane.proof.challenger import soundness
from data_plane.proof.challenger.challenger import ProofChallenger
from data_plane.proof.challenger.judgement import NETWORK_SECONDS, TOLERANCE
from data_plane.proof.challenger.port import Occasion, Outcome, ProofReport
from data_plane.proof.challenger.reference import TABLE, Basis, References
from data_plane.proof.prover.emulation.cards import CARDS
from data_plane.proof.verifier.recompute import LocalVerifier, one_blas_thread
from tests.support.cheats.attackers import Recorder, Replay
from tests.support.cheats.lies import LIES, PASSING, UNANSWERED, Lie, skipping, without
from tests.support.cheats.miniature import SIZES, Miniature

MINIATURE = Miniature()
MEASURED = MINIATURE.references()
MEMORY = Miniature(replace(SIZES, blocks_max=1024, steps=64, group=64), chains=448)
"""Blocks enough to leave out one in a thousand."""
_TINY = replace(SIZES, rounds=1, steps=2, blocks_max=16, iterations_max=1, inner=32)
CHAINS = Miniature(replace(_TINY, chains_opened=12, tiles_opened=1), chains=64, tiles=1)
TILES = Miniature(replace(_TINY, chains_opened=1, tiles_opened=6), chains=64, tiles=16)
"""Hardly any work, and samples to be lucky with."""
ABSENT = Lie(sold="h100-sxm-80gb")


@pytest.fixture(autouse=True)
def small_products_on_one_thread() -> None:
    one_blas_thread()


async def challenge(
    lie: Lie,
    seed: int,
    miniature: Miniature = MINIATURE,
    references: References = MEASURED,
    spread: float = 0.01,
) -> ProofReport:
    chance = random.Random(seed)
    challenger = ProofChallenger(
        LocalVerifier(),
        references,
        sizes=miniature.sizes,
        random_bytes=chance.randbytes,
        choose=lambda count, k: chance.sample(range(count), k),
    )
    return await challenger.challenge(lie.line(miniature, seed, spread), lie.expected(), Occasion.START)


def codes(report: ProofReport) -> set[str]:
    return {finding.code for finding in report.findings}


@pytest.mark.parametrize("name", LIES)
async def test_a_machine_is_caught_with(name: str) -> None:
    lie = LIES[name]
    report = await challenge(lie, seed=7)
    assert report.outcome is Outcome.FAILED, report.findings
    assert codes(report) & lie.caught_by, report.findings
    assert report.proven_bytes == ()


@pytest.mark.parametrize("gpus", [2, 3])
async def test_one_card_in_rotation_is_not_several_where_a_phase_is_repeated_anyway(gpus: int) -> None:
    """After three tries each GPU was in time once, but none of these tries counts."""
    lie = replace(LIES["one card as two, another one first each time"], gpus=gpus)
    twice = Miniature(replace(SIZES, repeats=2))
    report = await challenge(lie, 7, twice, twice.references())
    assert (report.outcome, codes(report)) == (Outcome.FAILED, {"too_slow"}), report.findings


@pytest.mark.parametrize("name", UNANSWERED)
async def test_nothing_is_proven_by_a_machine_with(name: str) -> None:
    lie = UNANSWERED[name]
    report = await challenge(lie, seed=7)
    assert report.outcome is Outcome.UNANSWERED, report.findings
    assert codes(report) == lie.caught_by
    assert report.proven_bytes == ()


@pytest.mark.parametrize("name", PASSING)
async def test_no_proof_finds_as_its_limits_say_a_machine_with(name: str) -> None:
    lie = PASSING[name]
    report = await challenge(lie, seed=7)
    assert (report.outcome, report.findings, report.hints) == (Outcome.PASSED, (), ())
    assert lie.caught_by == frozenset()


async def test_the_launch_chain_finds_the_same_machine_where_its_agent_is_ours() -> None:
    (lie,) = PASSING.values()
    assert codes(await challenge(replace(lie, make=Lie().make), seed=7)) == {"too_slow"}


async def test_a_conversation_that_is_played_back_is_caught() -> None:
    recorder = Recorder()
    honest = await challenge(replace(ABSENT, attacker=recorder), seed=1)
    replayed = await challenge(replace(ABSENT, attacker=Replay(recorder.tape)), seed=2)
    assert honest.outcome is Outcome.PASSED
    assert replayed.outcome is Outcome.FAILED
    assert "wrong_digest" in codes(replayed) or "malformed" in codes(replayed), replayed.findings


@pytest.mark.parametrize("model", CARDS)
async def test_an_honest_machine_passes_under_jitter_as(model: str) -> None:
    for seed in range(2):
        report = await challenge(Lie(sold=model), seed, spread=0.03)
        assert report.outcome is Outcome.PASSED, report.findings
        assert report.hints == ()


async def test_eight_honest_gpus_pass_together() -> None:
    report = await challenge(Lie(gpus=8), seed=4)
    assert report.outcome is Outcome.PASSED, report.findings
    assert len(report.proven_bytes) == 8


@pytest.mark.parametrize("model", CARDS)
async def test_an_honest_machine_passes_by_estimates_as(model: str) -> None:
    report = await challenge(Lie(sold=model), 5, references=MINIATURE.references(Basis.ESTIMATED))
    assert report.outcome is Outcome.PASSED, report.findings


async def test_estimates_do_not_tell_an_a100_from_an_h100() -> None:
    """The documented limit of estimates: a card of more than half the rate. Measured references catch it."""
    lie = LIES["an A100 by the name of an H100"]
    estimated = await challenge(lie, 5, references=MINIATURE.references(Basis.ESTIMATED))
    assert estimated.outcome is Outcome.PASSED
    assert (await challenge(lie, 5)).outcome is Outcome.FAILED


def hidden_memory_max(model: str) -> float:
    """From the card's true speeds, not from the references that the challenger uses."""
    speeds = CARDS[model].speeds
    return soundness.hidden_memory_max(
        soundness.slack(TOLERANCE[Basis.MEASURED], NETWORK_SECONDS, MEMORY.sizes.walk_seconds),
        soundness.regeneration_cost(speeds.fill, speeds.random_read, TABLE[model].iterations),
        soundness.link_cost(speeds.random_read, speeds.host_link),
    )


@pytest.mark.parametrize("model", ["h100-sxm-80gb", "a100-sxm-80gb", "l4-24gb", "gh200-96gb"])
async def test_memory_can_be_missing_up_to_the_bound_and_not_beyond(model: str) -> None:
    bound = hidden_memory_max(model)
    below = Lie(sold=model, make=without(0.88 * bound))
    beyond = Lie(sold=model, make=without(1.05 * bound))
    references = MEMORY.references()
    assert (await challenge(below, 3, MEMORY, references, spread=0.0)).outcome is Outcome.PASSED
    assert codes(await challenge(beyond, 3, MEMORY, references, spread=0.0)) == {"too_slow"}


@pytest.mark.parametrize("fetched", [0.0, 0.25, 0.75, 1.0])
async def test_no_other_mix_of_host_and_alus_hides_more_than_the_best(fetched: float) -> None:
    share = 0.88 * hidden_memory_max("h100-sxm-80gb")
    lie = Lie(make=without(share, fetched))
    assert codes(await challenge(lie, 3, MEMORY, MEMORY.references(), spread=0.0)) == {"too_slow"}


async def passes(lie: Lie, miniature: Miniature, trials: int) -> int:
    """How often it passes. A try that does not pass has shown a wrong digest."""
    references = miniature.references()
    reports = [await challenge(lie, seed, miniature, references) for seed in range(trials)]
    assert all(report.outcome is Outcome.PASSED or codes(report) == {"wrong_digest"} for report in reports)
    return sum(report.outcome is Outcome.PASSED for report in reports)


def likely(passed: int, trials: int, computed: float) -> bool:
    """Within four standard deviations of a binomial distribution."""
    return abs(passed - trials * computed) <= 4 * math.sqrt(trials * computed * (1 - computed))


@pytest.mark.parametrize("share", [0.05, 0.2])
async def test_leaving_out_chains_passes_as_often_as_computed(share: float) -> None:
    lie = Lie(sold="l4-24gb", make=skipping(chains=share))
    passed = await passes(lie, CHAINS, 60)
    assert likely(passed, 60, soundness.passes_skipping(share, CHAINS.sizes.chains_opened)), passed


async def test_leaving_out_tiles_passes_as_often_as_computed() -> None:
    passed = await passes(Lie(sold="l4-24gb", make=skipping(tiles=0.1)), TILES, 40)
    opened = 2 * TILES.sizes.tiles_opened  # Of either kind.
    assert likely(passed, 40, soundness.passes_skipping(0.1, opened)), passed
