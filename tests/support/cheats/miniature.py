"""Challenges in miniature: sizes that take milliseconds to compute, and as long as real ones on the virtual clock.

Reference rates, peaks and the emulated cards are scaled down by the same factors, so that a walk of a few thousand reads
takes 1.2 s of virtual time, and the network is as short in comparison as it really is. Only work is scaled: seconds,
tolerances, shares and all rules are the real ones. The data sheet's bandwidth is not scaled either, since a card's claims
are compared with it; therefore no walk here exceeds the data sheet, only the reference of its model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from data_plane.proof.challenger.plan import Sizes
from data_plane.proof.challenger.reference import (
    TABLE,
    Basis,
    Observed,
    Pace,
    Reference,
    References,
    TimedPhase,
)
from data_plane.proof.protocol.messages import BLOCK_BYTES
from data_plane.proof.prover.emulation.cards import CARDS
from data_plane.proof.prover.emulation.device import TILE_ENTRIES
from data_plane.simulation.timing import Scale

SIZES = Sizes(
    rounds=20,
    steps=32,
    chains_opened=12,
    inner=64,
    columns=4,
    tiles_opened=6,
    repeats=1,
    group=8,
    gap_milliseconds=10,
    blocks_max=128,
    iterations_max=2,
)
CHAINS = 64
TILES = 12


@dataclass(frozen=True)
class Miniature:
    """`Sizes` for a challenger, and how many chains and tiles they result in."""

    sizes: Sizes = SIZES
    chains: int = CHAINS
    tiles: int = TILES

    def scale(self, model: str) -> Scale:
        """How much real work the work of a machine that is sold as `model` stands for, whatever the machine really is."""
        speeds, sizes, rates = CARDS[model].speeds, self.sizes, self._rates()
        iterations = TABLE[model].iterations
        return Scale(
            blocks=speeds.random_read / rates["walk"],
            iterations=iterations / min(iterations, sizes.iterations_max),
            int8=speeds.int8 / rates["int8"],
            bf16=speeds.bf16 / rates["bf16"],
            launches=Sizes().rounds / sizes.rounds,
        )

    def references(self, basis: Basis = Basis.MEASURED) -> References:
        """Reference times that are exactly those of honest cards, with this basis."""
        models = [model for model in TABLE if model in CARDS]
        if basis is Basis.ESTIMATED:
            return References(table=self._table(models))
        observed = [
            Observed(
                model,
                570,
                {phase: Pace(rate, basis, "miniature") for phase, rate in self._paces(model).items()},
            )
            for model in models
        ]
        return References(observed, self._table(models))

    def _rates(self) -> "dict[TimedPhase, float]":
        """How much an honest card does in a second, with these sizes."""
        sizes = self.sizes
        tiles = self.tiles * TILE_ENTRIES * sizes.inner / sizes.tile_seconds
        walk = self.chains * sizes.steps * BLOCK_BYTES / sizes.walk_seconds
        return {"walk": walk, "int8": tiles, "bf16": tiles}

    def _paces(self, model: str) -> "dict[TimedPhase, float]":
        scale = self.scale(model)
        return {"fill": CARDS[model].speeds.fill / (scale.blocks * scale.iterations), **self._rates()}

    def _table(self, models: "list[str]") -> "Mapping[str, Reference]":
        def scaled(model: str) -> Reference:
            scale, one = self.scale(model), TABLE[model]
            return replace(
                one,
                walk_factor=one.walk_factor / scale.blocks,
                host_link=one.host_link / scale.blocks,
                int8_peak=one.int8_peak / scale.int8,
                bf16_peak=one.bf16_peak / scale.bf16,
            )

        return {model: scaled(model) for model in models}
