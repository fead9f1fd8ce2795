"""The fill: memory consists of units, each of which can be computed on its own, but only slowly.

Unit `j` is ChaCha20's block function applied `iterations` times to a state made of the seed and `j`. A block of 512
bytes has eight units. A verifier recomputes only the blocks that a sampled chain reads; an emulated prover fills its
small memory with all blocks.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_plane.proof.protocol.arithmetic.constants import FILL, SIGMA, UNITS_PER_BLOCK, WORDS_PER_UNIT
from data_plane.proof.protocol.arithmetic.mixing import Rounds, Words
from data_plane.proof.protocol.messages import SEED_BYTES

WORDS_PER_BLOCK = UNITS_PER_BLOCK * WORDS_PER_UNIT

_SLICE = 4096
"""Units that are computed together. The state and its copy, 256 KiB each, fit into a core's second-level cache, and
each numpy call handles 16,384 words."""


def units(seed: bytes, iterations: int, numbers: NDArray[np.uint64]) -> Words:
    """The units with these numbers, as an (n, 16) array. This takes n * iterations block functions."""
    return _computed(_states(seed, iterations, numbers), iterations)


def blocks(seed: bytes, iterations: int, numbers: NDArray[np.uint64]) -> Words:
    """The blocks with these numbers, as an (n, 128) array."""
    return blocks_of_many([seed], iterations, [numbers])


def blocks_of_many(seeds: Sequence[bytes], iterations: int, numbers: Sequence[NDArray[np.uint64]]) -> Words:
    """Blocks of several memories, seed after seed. One long batch is cheaper than many short ones."""
    each = np.arange(UNITS_PER_BLOCK, dtype=np.uint64)
    states = [
        _states(
            seed, iterations, (some.astype(np.uint64)[:, None] * np.uint64(UNITS_PER_BLOCK) + each).ravel()
        )
        for seed, some in zip(seeds, numbers, strict=True)
    ]
    found = _computed(np.concatenate(states, axis=1), iterations)
    return found.reshape(len(found) // UNITS_PER_BLOCK, WORDS_PER_BLOCK)


def _states(seed: bytes, iterations: int, numbers: NDArray[np.uint64]) -> Words:
    """The initial states of the units with these numbers: a (16, n) array."""
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a seed of {len(seed)} bytes")
    state = np.empty((WORDS_PER_UNIT, len(numbers)), np.uint32)
    state[0:4] = np.array(SIGMA, np.uint32)[:, None]
    state[4:12] = np.frombuffer(seed, "<u4").astype(np.uint32)[:, None]
    state[12] = numbers & np.uint64(0xFFFFFFFF)
    state[13] = numbers >> np.uint64(32)
    state[14] = iterations
    state[15] = FILL
    return state


def _computed(states: Words, iterations: int) -> Words:
    """The units that these states become: an (n, 16) array."""
    count = states.shape[1]
    found = np.empty((count, WORDS_PER_UNIT), np.uint32)
    for first in range(0, count, _SLICE):
        some = np.ascontiguousarray(states[:, first : first + _SLICE])
        Rounds(some).apply(iterations)
        found[first : first + _SLICE] = some.T
    return found
