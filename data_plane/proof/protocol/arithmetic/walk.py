"""The walk: chains of reads, where each read determines the address of the next one.

A chain has 32 lanes, as a warp has. Both sides use the same function: an emulated prover reads from the memory that it
filled, and a verifier recomputes each block that a chain reads (`fill.blocks`).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from data_plane.proof.protocol.arithmetic.constants import (
    BEGINNING_ROUNDS,
    ENDING_ROUNDS,
    GOLDEN,
    LANES,
    WALK,
)
from data_plane.proof.protocol.arithmetic.mixing import State, Words, absorb, mix
from data_plane.proof.protocol.messages import BLOCKS_MAX, NONCE_BYTES

Read = Callable[[NDArray[np.uint64]], Words]
"""From n block numbers to an (n, 128) array of their words."""

_SLICE = 4096
"""Chains that are walked together; each step reads 2 MiB of blocks."""


def digests(nonce: bytes, chains: NDArray[np.uint32], steps: int, blocks: int, read: Read) -> bytes:
    """Eight bytes for each chain, in the order of `chains`, over a memory of `blocks` blocks."""
    if len(nonce) != NONCE_BYTES or not 0 < blocks <= BLOCKS_MAX:
        raise ValueError("not a walk")
    return b"".join(
        _walked(nonce, chains[first : first + _SLICE], steps, blocks, read)
        for first in range(0, len(chains), _SLICE)
    )


def _walked(nonce: bytes, chains: NDArray[np.uint32], steps: int, blocks: int, read: Read) -> bytes:
    x = beginning(nonce, chains)
    for _ in range(steps):
        met = read(addresses(x, blocks)).reshape(len(chains), LANES, 4)
        x = absorb(x, (met[:, :, 0], met[:, :, 1], met[:, :, 2], met[:, :, 3]))
    return ending(x)


def beginning(nonce: bytes, chains: NDArray[np.uint32]) -> State:
    """The state before the first step: four (n, LANES) arrays."""
    n = np.frombuffer(nonce, "<u4").astype(np.uint32)
    shape = (len(chains), LANES)
    chain = np.broadcast_to(chains.astype(np.uint32)[:, None], shape)
    lane = np.broadcast_to(np.arange(LANES, dtype=np.uint32), shape)
    third = np.full(shape, n[2]) + np.uint32(WALK)
    return mix((n[0] + chain, n[1] ^ (lane * np.uint32(GOLDEN)), third, n[3] ^ chain), BEGINNING_ROUNDS)


def addresses(x: State, blocks: int) -> NDArray[np.uint64]:
    """The block that each chain reads next: the high 64 bits of h * blocks, where h is the warp's 64-bit word.

    `blocks` is at most 2^31, so with h = high * 2^32 + low the product splits into two that fit 64 bits:
    high * blocks is below 2^63, and the carry (low * blocks) / 2^32 adds less than 2^31.
    """
    count = np.uint64(blocks)
    high, low = _over_the_warp(x[1]).astype(np.uint64), _over_the_warp(x[0]).astype(np.uint64)
    return (high * count + ((low * count) >> np.uint64(32))) >> np.uint64(32)


def ending(x: State) -> bytes:
    """The digests of finished states: the exclusive or over the lanes of the first two words."""
    x = mix(x, ENDING_ROUNDS)
    return np.stack([_over_the_warp(x[0]), _over_the_warp(x[1])], axis=1).astype("<u4").tobytes()


def _over_the_warp(word: Words) -> Words:
    reduced: Words = np.bitwise_xor.reduce(word, axis=1)
    return reduced
