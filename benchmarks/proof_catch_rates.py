"""How often each cheat is caught, by the real challenger and verifier, beside what `soundness` computes.

It runs on the virtual clock and in miniature (`tests/support/cheats`): the times are those of a model of the cards,
not of a card. It measures the protocol with its sampling, its time rule and its retries. Samples come from the
operating system's generator, as in production, so two runs differ.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from benchmarks.results import Figure
from data_plane.proof.challenger import soundness
from data_plane.proof.challenger.challenger import ProofChallenger
from data_plane.proof.challenger.judgement import NETWORK_SECONDS, TOLERANCE
from data_plane.proof.challenger.plan import Sizes
from data_plane.proof.challenger.port import Occasion, Outcome
from data_plane.proof.challenger.reference import TABLE, Basis
from data_plane.proof.prover.emulation.cards import CARDS
from data_plane.proof.verifier.recompute import LocalVerifier, one_blas_thread
from tests.support.cheats.cards import with_speeds
from tests.support.cheats.lies import LIES, PASSING, UNANSWERED, Lie, skipping, without
from tests.support.cheats.miniature import SIZES, Miniature

EACH_LIE = 20
EACH_HONEST_MODEL = 25
EACH_SHARE = 200
EACH_MISSING = 20

_REAL = Sizes()
SMALL = Miniature()
MEMORY = Miniature(replace(SIZES, blocks_max=1024, steps=64, group=64), chains=448)
"""Blocks enough to leave out one in a thousand."""
_TINY = replace(SIZES, rounds=1, steps=2, blocks_max=16, iterations_max=1, inner=32)
CHAINS = Miniature(replace(_TINY, chains_opened=_REAL.chains_opened, tiles_opened=1), chains=128, tiles=1)
TILES = Miniature(
    replace(_TINY, chains_opened=1, tiles_opened=_REAL.repeats * _REAL.tiles_opened), chains=64, tiles=64
)
"""Hardly any work, and samples as large as the real ones."""


@dataclass(frozen=True, slots=True)
class Trials:
    """How many trials of one cheat did not pass."""

    caught: int
    trials: int

    @property
    def percent(self) -> float:
        return 100 * self.caught / self.trials

    def interval(self) -> tuple[float, float]:
        """Wilson's interval at 95 %, in percent. It is valid at 0 and 1 too, where most of these shares are."""
        z, n, p = 1.96, self.trials, self.caught / self.trials
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)

    def note(self, computed: float | None = None) -> str:
        low, high = self.interval()
        bounds = f"{low:.1f} to {high:.1f} at 95 %, {self.trials} trials"
        return bounds if computed is None else f"{bounds}; computed {100 * computed:.2f}"


async def measure() -> list[Figure]:
    one_blas_thread()
    return [
        *await _honest(),
        *await _lies(),
        *await _missing_memory(),
        *await _skipping(),
        *await _remote_calls(),
    ]


async def _trials(lie: Lie, miniature: Miniature, seeds: Iterable[int], spread: float = 0.01) -> Trials:
    challenger = ProofChallenger(LocalVerifier(), miniature.references(), sizes=miniature.sizes)
    outcomes = [
        (
            await challenger.challenge(lie.line(miniature, seed, spread), lie.expected(), Occasion.START)
        ).outcome
        for seed in seeds
    ]
    return Trials(sum(one is not Outcome.PASSED for one in outcomes), len(outcomes))


async def _honest() -> list[Figure]:
    figures = list[Figure]()
    for spread in (0.01, 0.05):
        found = [
            await _trials(Lie(sold=model), SMALL, range(EACH_HONEST_MODEL), spread) for model in sorted(CARDS)
        ]
        every = Trials(sum(one.caught for one in found), sum(one.trials for one in found))
        name = f"honest, {len(CARDS)} models, {spread:.0%} jitter"
        figures.append(Figure(name, every.percent, "% rejected", "<= 0", every.note()))
    return figures


async def _lies() -> list[Figure]:
    figures = list[Figure]()
    for name, lie in {**LIES, **UNANSWERED}.items():
        found = await _trials(lie, SMALL, range(EACH_LIE))
        figures.append(Figure(name, found.percent, "% not passed", ">= 100", found.note()))
    for name, lie in PASSING.items():
        found = await _trials(lie, SMALL, range(EACH_LIE))
        figures.append(Figure(f"{name} (a known limit)", found.percent, "% not passed", note=found.note()))
    return figures


async def _missing_memory() -> list[Figure]:
    """Machines that mix host link and ALUs as well as possible, around the largest share that this can hide."""
    figures = list[Figure]()
    for model in ("h100-sxm-80gb", "l4-24gb"):
        speeds = CARDS[model].speeds
        bound = soundness.hidden_memory_max(
            soundness.slack(TOLERANCE[Basis.MEASURED], NETWORK_SECONDS, MEMORY.sizes.walk_seconds),
            soundness.regeneration_cost(speeds.fill, speeds.random_read, TABLE[model].iterations),
            soundness.link_cost(speeds.random_read, speeds.host_link),
        )
        for times in (0.8, 0.9, 1.0, 1.1, 1.3):
            lie = Lie(sold=model, make=without(times * bound))
            found = await _trials(lie, MEMORY, range(EACH_MISSING))
            name = f"{model}, {times * bound:.1%} missing ({times:g} m_max)"
            computed = None if times == 1 else float(times > 1)
            figures.append(Figure(name, found.percent, "% not passed", note=found.note(computed)))
    return figures


async def _skipping() -> list[Figure]:
    figures = list[Figure]()
    for share in (0.02, 0.05, 0.1, 0.2):
        # L4: the fewest multiprocessors, so the shortest answers about gaps, which matter to nothing here.
        of_chains = await _trials(Lie(sold="l4-24gb", make=skipping(chains=share)), CHAINS, range(EACH_SHARE))
        of_tiles = await _trials(Lie(sold="l4-24gb", make=skipping(tiles=share)), TILES, range(EACH_SHARE))
        for what, found, opened in (
            ("chains", of_chains, _REAL.chains_opened),
            ("tiles, both kinds", of_tiles, 2 * _REAL.repeats * _REAL.tiles_opened),
        ):
            computed = 1 - soundness.passes_skipping(share, opened)
            name = f"{share:.0%} of {what} left out, {opened} opened"
            figures.append(Figure(name, found.percent, "% not passed", note=found.note(computed)))
    return figures


async def _remote_calls() -> list[Figure]:
    figures = list[Figure]()
    for microseconds in (20, 50, 100, 150, 200):
        far = with_speeds(CARDS["h100-sxm-80gb"], launch=microseconds * 1e-6)
        found = await _trials(Lie(really=far), SMALL, range(EACH_LIE))
        name = f"launches {microseconds} us away"
        figures.append(Figure(name, found.percent, "% not passed", note=found.note()))
    return figures
