"""Plans a challenge: computes its sizes from the model's reference times and the memory that was sold. Pure.

    plan(identity, expected, reference, times, occasion=occasion, sizes=Sizes()) -> Plan

The sizes are chosen so that each phase takes the same number of seconds on every model, and so that every count fits
into the messages. The default sizes are those of docs/gpu-proof.md. The challenge of an emulation is tiny, whatever the
emulation claims to be. Tests have `Sizes` of their own.
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
    """Determines the sizes of a challenge. The fields that end in `_max` are limits."""

    rounds: int = 2000
    """Launches in the launch chain."""
    launch_seconds: float = 0.25
    """The time limit of all launches together, in addition to the network's allowance."""
    memory_share: float = 0.94
    """The share of the free memory that is filled, after the agent has made its context."""
    memory_share_sold: float = 0.93
    """The least share of the sold memory (`judgement.memory_sold`) that is filled, whatever is claimed to be free. If
    `judgement.FREE_MIN` of the sold memory is free, a fiftieth stays unused: 460 MiB on the smallest card. The agent
    allocates context, kernels and buffers before it reads the free memory, and the driver's page tables take about a
    thousandth. This is an estimate that has not been tested on a device yet."""
    walk_seconds: float = 1.2
    """At least ten times the allowance for the network."""
    steps: int = 512
    """The largest number of steps of a chain."""
    recomputed_max: int = 8192
    """The limit of steps times iterations of one chain. Chains are shorter if units are more expensive, so that
    checking a sample costs the verifier the same for every model. With an eighth of the steps there are eight
    times the chains."""
    chains_opened: int = 48
    tile_seconds: float = 0.5
    inner: int = 16_384
    columns: int = 1024
    tiles_opened: int = 16
    """Tiles that are opened in each repeat; with two repeats these are 32 of each kind."""
    repeats: int = 2
    """Repeats of each kind of tiles. A large difference between them is a hint."""
    group: int = 1024
    gap_milliseconds: int = 500
    gap_threshold_us: int = 200
    blocks_max: int = BLOCKS_MAX
    iterations_max: int = 1024
    chains_max: int = CHAINS_MAX
    tiles_max: int = TILES_MAX

    def held(self) -> "Sizes":
        """The sizes for a machine that a customer holds but does not use: leaves them at least 30 % of the memory.

        The filled share must be more than half a card has, even minus the memory that a cheat could hide while times
        are estimates (`soundness.hidden_memory_max`); otherwise half a card could pass. For L4 and GH200 this does
        not hold.
        """
        return replace(self, memory_share=0.0, memory_share_sold=0.60)

    def brief(self) -> "Sizes":
        """The sizes for a challenge without a special occasion: half of the samples."""
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
"""The sizes for an emulation, which computes them in moments: every message and check, but no meaningful times."""


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
        """The bytes that a whole walk reads."""
        return self.gpus[gpu].chains * self.sizes.steps * BLOCK_BYTES

    def bytes_filled(self, gpu: int) -> int:
        return self.gpus[gpu].blocks * BLOCK_BYTES

    def units_computed(self, gpu: int) -> int:
        """Units times iterations of the whole fill."""
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
    """The plan, with one entry for each GPU of the machine, by index. `judge_identity` must have no finding before."""
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
    """The largest power of two within both limits, or `steps` itself if that is within them."""
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
