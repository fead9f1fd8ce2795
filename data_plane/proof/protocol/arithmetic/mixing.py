"""The mixing function of all phases: ChaCha's quarter round, on numpy arrays of unsigned 32-bit words.

`quarter_round`, `mix` and `absorb` take a state of four arrays of one shape and return a new one. `Rounds` does the
same arithmetic in place and without allocation, for the fill, which takes most of a verifier's time. Sections 2.1 to
2.3 of RFC 8439 define the arithmetic and have test vectors.
"""

from typing import cast

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
State = tuple[Words, Words, Words, Words]


def _rotated(x: Words, left: int) -> Words:
    return cast("Words", (x << np.uint32(left)) | (x >> np.uint32(32 - left)))


def quarter_round(x: State) -> State:
    a, b, c, d = x
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def mix(x: State, n: int) -> State:
    """`n` quarter rounds."""
    for _ in range(n):
        x = quarter_round(x)
    return x


def absorb(x: State, w: State) -> State:
    """The state after taking in four words."""
    return quarter_round((x[0] + w[0], x[1] ^ w[1], x[2] + w[2], x[3] ^ w[3]))


def chacha_block(state: Words) -> Words:
    """ChaCha20's block function (20 rounds and the feed-forward) of each column of a (16, n) array."""
    blocks = np.array(state, dtype=np.uint32, order="C")
    Rounds(blocks).apply(1)
    return blocks


Pairs = tuple[tuple[Words, Words], ...]


class Rounds:
    """ChaCha20's block function in place, on a contiguous (16, n) array that it refers to.

    A column round consists of four quarter rounds at a time: one call for each operation, on rows of four words. In a
    diagonal round the rows are shifted against each other, so an operation on two rows takes two calls (for three
    words, and for the word that wraps around); no word is ever moved. All views are made once, because making a view
    costs as much as the arithmetic on a small batch.
    """

    def __init__(self, blocks: Words) -> None:
        if (
            blocks.dtype != np.uint32
            or blocks.ndim != 2
            or len(blocks) != 16
            or not blocks.flags.c_contiguous
        ):
            raise ValueError("not a contiguous (16, n) array of 32-bit words")
        self._blocks = blocks
        self._input = np.empty_like(blocks)
        self._spare = np.empty_like(blocks[:4])
        self._b, self._d = blocks[4:8], blocks[12:16]
        a, b, c, d = blocks[0:4], blocks[4:8], blocks[8:12], blocks[12:16]
        # The pairs that a quarter round adds and xors, in its order. Both of its halves use the same four pairs.
        self._column: tuple[Pairs, ...] = tuple(((x, y),) for x, y in ((a, b), (d, a), (c, d), (b, c)))
        self._diagonal: tuple[Pairs, ...] = tuple(_shifted(x, y) for x, y in ((a, b), (d, a), (c, d), (b, c)))

    def apply(self, iterations: int) -> None:
        """Apply the block function `iterations` times, each time to the result of the time before."""
        for _ in range(iterations):
            np.copyto(self._input, self._blocks)
            for _ in range(10):
                self._round(*self._column)
                self._round(*self._diagonal)
            np.add(self._blocks, self._input, self._blocks)

    def _round(self, ab: Pairs, da: Pairs, cd: Pairs, bc: Pairs) -> None:
        for left_d, left_b in ((16, 12), (8, 7)):
            for x, y in ab:
                np.add(x, y, x)
            for x, y in da:
                np.bitwise_xor(x, y, x)
            self._rotate(self._d, left_d)
            for x, y in cd:
                np.add(x, y, x)
            for x, y in bc:
                np.bitwise_xor(x, y, x)
            self._rotate(self._b, left_b)

    def _rotate(self, x: Words, left: int) -> None:
        np.right_shift(x, _SHIFTS[32 - left], self._spare)
        np.left_shift(x, _SHIFTS[left], x)
        np.bitwise_or(x, self._spare, x)


def _shifted(x: Words, y: Words) -> Pairs:
    """Row x against row y shifted by one word: x0 with y1, x1 with y2, x2 with y3, x3 with y0."""
    return (x[:3], y[1:]), (x[3:], y[:1])


_SHIFTS = [np.array(k, np.uint32) for k in range(33)]
"""Arrays without dimensions, because numpy converts a plain number at every call."""
