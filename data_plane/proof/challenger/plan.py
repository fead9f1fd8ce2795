"""How large a challenge is: from the model's reference times and the memory that was sold to counts. Pure.

    plan(identity, expected, reference, times, occasion=occasion, sizes=Sizes()) -> Plan

Sizes are chosen so that each phase takes a card of the model the same seconds whatever its speed, and so
that every count fits the messages. The default sizes are those of docs/gpu-proof.md. A challenge of an
emulation is tiny, whatever it claims to be; so is one in a test, by its own `Sizes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from data_plane.proof.challenger.judgement import memory_sold
from data_plane.proof.challenger.port import Expected, Occasion
from data_plane.proof.challenger.reference import Reference, Times
from data_plane.proof.protocol.arithmetic.constants import SIDE, UNITS_PER_BLOCK
from data_plane.proof.protocol.messages import (
    BLOCK_BYTES,
    BLOCKS_MAX,
    CHAINS_MAX,
    GROUPS_MAX,
    TILES_MAX,
    GpuIdentity,
    Identity,
    TileKind,
)

KINDS: tuple[TileKind, ...] = ("int8", "bf16")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the sizes of a challenge follow from. The `_max` fields cut a challenge down."""

    rounds: int = 2000
    """Launches in the launch chain."""
    launch_seconds: float = 0.25
    """What all of them may take, besides the network's allowance."""
    memory_share: float = 0.94
    """Of what is free once the agent has its context."""
    memory_share_sold: float = 0.93
    """Of what was sold (`judgement.memory_sold`): never less, whatever is said to be free. With `judgement.FREE_MIN` of
    it free, a fiftieth stays alone: 460 MiB of the smallest card. The agent takes nothing more by then, since
    context, kernels and room for digests come before free memory is read; a driver takes page tables, a thousandth
    of that. An estimate that a device has to settle."""
    walk_seconds: float = 1.2
    """At least ten times what the network is allowed."""
    steps: int = 512
    """Of a chain, at most."""
    recomputed_max: int = 8192
    """Steps times iterations of one chain: chains are shorter where a unit is dear, so that checking a sample costs
    the verifier the same on every model. A card with an eighth of the steps walks eight times the chains."""
    chains_opened: int = 48
    tile_seconds: float = 0.5
    inner: int = 16_384
    columns: int = 1024
    tiles_opened: int = 16
    """Of each repeat, and so 32 of each kind."""
    repeats: int = 2
    """Of each kind of tiles: their spread is a hint."""
    group: int = 1024
    gap_milliseconds: int = 500
    gap_threshold_us: int = 200
    blocks_max: int = BLOCKS_MAX
    iterations_max: int = 1024
    chains_max: int = CHAINS_MAX
    tiles_max: int = TILES_MAX

    def held(self) -> "Sizes":
        """For a machine that somebody holds and does not use: leave three tenths of the memory to them, and more.

        What is filled has to be more than half a card holds, or a switch to one would pass: also when as much of it is
        hidden as `soundness.hidden_memory_max` allows while times are estimates. On L4 and GH200 that is too much.
        """
        return replace(self, memory_share=0.0, memory_share_sold=0.60)

    def brief(self) -> "Sizes":
        """For a look that nothing gave rise to: half the samples."""
        return replace(
            self,
            chains_opened=self.chains_opened // 2,
            repeats=1,
            gap_milliseconds=self.gap_milliseconds // 2,
        )


EMULATED = Sizes(
    rounds=20,
    steps=16,
    chains_opened=4,
    inner=64,
    columns=2,
    tiles_opened=2,
    repeats=1,
    group=8,
    gap_milliseconds=10,
    blocks_max=256,
    iterations_max=1,
    chains_max=32,
    tiles_max=4,
)
"""What a prover without a GPU computes in moments: every message, every check, no figure."""


@dataclass(frozen=True, slots=True)
class GpuPlan:
    blocks: int
    iterations: int
    chains: int
    tiles: Mapping[TileKind, int]


@dataclass(frozen=True, slots=True)
class Plan:
    sizes: Sizes
    gpus: tuple[GpuPlan, ...]

    def bytes_read(self, gpu: int) -> int:
        """By a whole walk."""
        return self.gpus[gpu].chains * self.sizes.steps * BLOCK_BYTES

    def bytes_filled(self, gpu: int) -> int:
        return self.gpus[gpu].blocks * BLOCK_BYTES

    def units_computed(self, gpu: int) -> int:
        """Units times iterations of the fill."""
        return self.gpus[gpu].blocks * UNITS_PER_BLOCK * self.gpus[gpu].iterations

    def multiply_adds(self, gpu: int, kind: TileKind) -> int:
        return self.gpus[gpu].tiles[kind] * SIDE * SIDE * self.sizes.inner


def plan(
    identity: Identity,
    expected: Expected,
    reference: Reference,
    times: Times,
    *,
    occasion: Occasion,
    sizes: Sizes,
) -> Plan:
    """One entry per GPU that the machine claims, by index. For claims that `judge_identity` has no finding about."""
    if identity.source == "emulated":
        sizes = EMULATED
    if occasion.held:
        sizes = sizes.held()
    if occasion is Occasion.IDLE:
        sizes = sizes.brief()
    sizes = replace(sizes, steps=_steps(min(reference.iterations, sizes.iterations_max), sizes))
    filling = (_bytes_to_fill(gpu, expected, sizes) for gpu in identity.gpus)
    return Plan(sizes, tuple(_of_gpu(to_fill, reference, times, sizes) for to_fill in filling))


def _steps(iterations: int, sizes: Sizes) -> int:
    """The largest power of two that is within both bounds; `steps` itself where it is."""
    affordable = max(1, sizes.recomputed_max // iterations)
    return sizes.steps if sizes.steps <= affordable else 1 << (affordable.bit_length() - 1)


def _of_gpu(to_fill: int, reference: Reference, times: Times, sizes: Sizes) -> GpuPlan:
    chain_bytes = sizes.steps * BLOCK_BYTES
    tile_work = SIDE * SIDE * sizes.inner
    digests_max = GROUPS_MAX * sizes.group
    return GpuPlan(
        blocks=_between(1, -(-to_fill // BLOCK_BYTES), min(sizes.blocks_max, BLOCKS_MAX)),
        iterations=min(reference.iterations, sizes.iterations_max),
        chains=_between(
            1,
            round(sizes.walk_seconds * times.walk.rate / chain_bytes),
            min(sizes.chains_max, CHAINS_MAX, digests_max),
        ),
        tiles={
            kind: _between(
                1,
                round(sizes.tile_seconds * times.of(kind).rate / tile_work),
                min(sizes.tiles_max, TILES_MAX, digests_max),
            )
            for kind in KINDS
        },
    )


def _bytes_to_fill(gpu: GpuIdentity, expected: Expected, sizes: Sizes) -> int:
    of_sold = ceil(sizes.memory_share_sold * memory_sold(gpu, expected))
    return max(int(sizes.memory_share * gpu.cuda_free), of_sold)


def _between(least: int, value: int, most: int) -> int:
    return max(least, min(value, most))
