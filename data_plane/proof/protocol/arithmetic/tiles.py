"""Tiles: 64 x 64 pieces of a large matrix product, whose entries are so small that sums are exact in any order.

Both kinds of entries are small signed integers here: int8 as they are, bf16 in units of a quarter (+-4 to +-7). A
product of two bf16 entries is therefore in units of a sixteenth, and the digest uses these.
"""

import numpy as np
from numpy.typing import NDArray

from data_plane.proof.protocol.arithmetic.constants import (
    BEGINNING_ROUNDS,
    ENTRIES_PER_WORD,
    ENTRY_FACTOR,
    LANES,
    SIDE,
    TAGS,
)
from data_plane.proof.protocol.arithmetic.mixing import State, Words, absorb, mix
from data_plane.proof.protocol.arithmetic.walk import ending
from data_plane.proof.protocol.messages import INNER_MAX, NONCE_BYTES, TileKind

Entries = NDArray[np.float32]
"""Small integers, in the type that the BLAS multiplies fastest."""

_INNER_SLICE = 1024
"""How many entries of a row are multiplied at once, in float32. A partial sum of 1024 products is an integer of at
most 1024 * 128 * 128 = 2^24 (int8; for bf16 1024 * 7 * 7). A float32 represents every integer up to 2^24 exactly, so
neither the order of a BLAS's sums nor a fused multiply-add causes rounding. Slices are summed in int64."""

_TILES_SLICE = 256
"""How many tiles are computed together; their accumulators take 4 MiB."""


def digests(kind: TileKind, seed: bytes, inner: int, columns: int, tiles: NDArray[np.uint32]) -> bytes:
    """Eight bytes for each tile, in the order of `tiles`. Tiles are numbered along rows of `columns` tiles."""
    if len(seed) != NONCE_BYTES or columns < 1 or not 0 < inner <= INNER_MAX or inner % 32:
        raise ValueError("not a product of tiles")
    return b"".join(
        _digested(kind, seed, inner, columns, tiles[first : first + _TILES_SLICE])
        for first in range(0, len(tiles), _TILES_SLICE)
    )


def _digested(kind: TileKind, seed: bytes, inner: int, columns: int, tiles: NDArray[np.uint32]) -> bytes:
    sums = np.empty((len(tiles), SIDE, SIDE), np.uint32)
    for at, tile in enumerate(tiles.tolist()):
        # astype wraps modulo 2^32, so that a negative sum becomes its two's complement, as in a GPU's register.
        sums[at] = product(kind, seed, inner, tile // columns, tile % columns).astype(np.uint32)
    return _folded(kind, columns, tiles, sums)


def product(kind: TileKind, seed: bytes, inner: int, row: int, column: int) -> NDArray[np.int64]:
    """One tile of C, (SIDE, SIDE), as integers; for bf16 in units of a sixteenth."""
    a, b = (
        RowKeys(seed, tag, np.arange(at * SIDE, (at + 1) * SIDE, dtype=np.uint64).astype(np.uint32))
        for tag, at in zip(TAGS[kind], (row, column), strict=True)
    )
    sums = np.zeros((SIDE, SIDE), np.int64)
    for first in range(0, inner, _INNER_SLICE):
        last = min(first + _INNER_SLICE, inner)
        left, right = (keys.entries(kind, first, last) for keys in (a, b))
        sums += (left @ right.T).astype(np.int64)
    return sums


def operand(kind: TileKind, seed: bytes, tag: int, rows: Words, inner: int) -> Entries:
    """These rows of A or B, (len(rows), inner), as integers; for bf16 in units of a quarter."""
    return RowKeys(seed, tag, rows).entries(kind, 0, inner)


class RowKeys:
    """Generates the words of some rows of one operand."""

    def __init__(self, seed: bytes, tag: int, rows: Words) -> None:
        s = np.frombuffer(seed, "<u4").astype(np.uint32)
        r = rows.astype(np.uint32)
        x = mix(
            (s[0] + r, np.full_like(r, s[1] ^ np.uint32(tag)), np.full_like(r, s[2]), s[3] ^ r),
            BEGINNING_ROUNDS,
        )
        self._base = x[0][:, None]
        self._step = (x[1] | np.uint32(1))[:, None]

    def words(self, first: int, last: int) -> Words:
        """The words first .. last-1 of every row."""
        z = self._base + np.arange(first, last, dtype=np.uint32)[None, :] * self._step
        z ^= z >> np.uint32(15)
        z *= np.uint32(ENTRY_FACTOR)
        z ^= z >> np.uint32(12)
        return z

    def entries(self, kind: TileKind, first: int, last: int) -> Entries:
        """The entries first .. last-1 of every row, both multiples of four; for bf16 in units of a quarter."""
        per_word = ENTRIES_PER_WORD[kind]
        words = self.words(first // per_word, last // per_word)
        if kind == "int8":
            return words.astype("<u4").view(np.int8).astype(np.float32)
        bits = np.empty((len(words), last - first), np.uint32)
        bits[:, 0::2] = words << np.uint32(16)
        bits[:, 1::2] = words
        # A bf16 is the upper half of a float32. The generator keeps its sign and two mantissa bits, and sets the
        # exponent to that of 1. With the exponent of 4 it is the same number in units of a quarter.
        bits &= np.uint32(0x80600000)
        bits |= np.uint32(0x40800000)
        return bits.view(np.float32)


def _folded(kind: TileKind, columns: int, tiles: NDArray[np.uint32], sums: Words) -> bytes:
    """The digests of tiles from their (n, SIDE, SIDE) sums, in the order in which the lanes of `mma` have them."""
    shape = (len(tiles), LANES)
    lanes = np.arange(LANES)
    g, p = lanes // 4, 2 * (lanes % 4)
    x: State = (
        np.broadcast_to(lanes.astype(np.uint32), shape),
        np.broadcast_to(tiles.astype(np.uint32)[:, None], shape),
        np.full(shape, TAGS[kind][0], np.uint32),
        np.full(shape, columns, np.uint32),
    )
    for m in range(4):
        for n in range(8):
            row, column = 16 * m + g, 8 * n + p
            x = absorb(
                x,
                (
                    sums[:, row, column],
                    sums[:, row, column + 1],
                    sums[:, row + 8, column],
                    sums[:, row + 8, column + 1],
                ),
            )
    return ending(x)
