"""The fill: memory as units that anybody can compute alone, slowly, and nobody can compute fast.

Unit `j` is ChaCha20's block function applied `iterations` times to a state of the seed and `j`. A block
of 512 bytes is eight units. A verifier recomputes the few blocks that a chain met; an emulated prover
fills a small memory with all of them.
"""

import numpy as np
from numpy.typing import NDArray

from data_plane.proof.arithmetic.mixing import Rounds, Words
from data_plane.proof.messages import SEED_BYTES

UNITS_PER_BLOCK = 8
WORDS_PER_UNIT = 16
WORDS_PER_BLOCK = UNITS_PER_BLOCK * WORDS_PER_UNIT

CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
"""`expand 32-byte k`, as in RFC 8439 2.3."""
TAG = 0x4C4C4946
"""`FILL`: no other use of ChaCha with this seed gives the same words."""

_SLICE = 4096
"""Units computed together: the state and its copy, 256 KiB each, stay in a core's second-level cache, and the
cost of a numpy call is spread over 16,384 words."""


def units(seed: bytes, iterations: int, numbers: NDArray[np.uint64]) -> Words:
    """The units with these numbers, as an (n, 16) array. Work: n * iterations block functions."""
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a seed of {len(seed)} bytes")
    key = np.frombuffer(seed, "<u4").astype(np.uint32)
    found = np.empty((len(numbers), WORDS_PER_UNIT), np.uint32)
    for first in range(0, len(numbers), _SLICE):
        some = numbers[first : first + _SLICE].astype(np.uint64)
        state = np.empty((WORDS_PER_UNIT, len(some)), np.uint32)
        state[0:4] = np.array(CONSTANTS, np.uint32)[:, None]
        state[4:12] = key[:, None]
        state[12] = some & np.uint64(0xFFFFFFFF)
        state[13] = some >> np.uint64(32)
        state[14] = iterations
        state[15] = TAG
        Rounds(state).apply(iterations)
        found[first : first + _SLICE] = state.T
    return found


def blocks(seed: bytes, iterations: int, numbers: NDArray[np.uint64]) -> Words:
    """The blocks with these numbers, as an (n, 128) array."""
    each = np.arange(UNITS_PER_BLOCK, dtype=np.uint64)
    of_blocks = numbers.astype(np.uint64)[:, None] * np.uint64(UNITS_PER_BLOCK) + each
    return units(seed, iterations, of_blocks.ravel()).reshape(len(numbers), WORDS_PER_BLOCK)
