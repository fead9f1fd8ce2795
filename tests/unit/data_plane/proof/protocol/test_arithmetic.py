"""The proof's arithmetic in numpy, against RFC 8439 and against a slow second telling of docs/gpu-proof.md."""

import hashlib
from collections.abc import Callable
from functools import reduce
from operator import xor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from data_plane.proof.protocol.arithmetic import fill, launches, mixing, tiles, walk
from data_plane.proof.protocol.arithmetic.constants import TAGS
from data_plane.proof.protocol.arithmetic.mixing import Words
from data_plane.proof.protocol.messages import TileKind

Numbers = NDArray[np.uint64]

SEED = bytes(range(32))
NONCE = bytes(range(200, 216))
WORD = 0xFFFFFFFF
ODD_SIZES = [1, 31, 4095, 4096, 4097]


# The second telling: Python's own integers, one word at a time, written from the page and not from the code.


def rotl(x: int, k: int) -> int:
    return (x << k | x >> (32 - k)) & WORD


def slow_quarter_round(x: list[int]) -> list[int]:
    a, b, c, d = x
    a = (a + b) & WORD
    d = rotl(d ^ a, 16)
    c = (c + d) & WORD
    b = rotl(b ^ c, 12)
    a = (a + b) & WORD
    d = rotl(d ^ a, 8)
    c = (c + d) & WORD
    b = rotl(b ^ c, 7)
    return [a, b, c, d]


def slow_mix(x: list[int], n: int) -> list[int]:
    return reduce(lambda state, _: slow_quarter_round(state), range(n), x)


def slow_absorb(x: list[int], w: list[int]) -> list[int]:
    return slow_quarter_round([(x[0] + w[0]) & WORD, x[1] ^ w[1], (x[2] + w[2]) & WORD, x[3] ^ w[3]])


def slow_block(state: list[int]) -> list[int]:
    x = list(state)
    for _ in range(10):
        for at in (
            (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
            (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
        ):  # fmt: skip
            for place, word in zip(at, slow_quarter_round([x[one] for one in at]), strict=True):
                x[place] = word
    return [(new + old) & WORD for new, old in zip(x, state, strict=True)]


def little(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def slow_unit(seed: bytes, iterations: int, j: int) -> list[int]:
    state = [*little(b"expand 32-byte k"), *little(seed), j % 2**32, j // 2**32, iterations, 0x4C4C4946]
    return reduce(lambda x, _: slow_block(x), range(iterations), state)


def over_the_warp(lanes: list[list[int]], word: int) -> int:
    return reduce(xor, (x[word] for x in lanes))


def slow_digest(lanes: list[list[int]]) -> bytes:
    lanes = [slow_mix(x, 4) for x in lanes]
    return b"".join(over_the_warp(lanes, word).to_bytes(4, "little") for word in (0, 1))


def slow_walk(nonce: bytes, c: int, steps: int, blocks: int, block: Callable[[int], list[int]]) -> bytes:
    n = little(nonce)
    lanes = [
        slow_mix(
            [(n[0] + c) & WORD, n[1] ^ (lane * 0x9E3779B9 & WORD), (n[2] + 0x4B4C4157) & WORD, n[3] ^ c], 8
        )
        for lane in range(32)
    ]
    for _ in range(steps):
        h = over_the_warp(lanes, 1) * 2**32 + over_the_warp(lanes, 0)
        met = block(h * blocks // 2**64)
        lanes = [slow_absorb(x, met[4 * lane : 4 * lane + 4]) for lane, x in enumerate(lanes)]
    return slow_digest(lanes)


def slow_row(kind: TileKind, seed: bytes, tag: int, r: int, inner: int) -> list[int]:
    """The entries of one row; bf16 in quarters."""
    s = little(seed)
    base, step, *_ = slow_mix([(s[0] + r) & WORD, s[1] ^ tag, s[2], s[3] ^ r], 8)
    step |= 1
    row = []
    for q in range(inner // {"int8": 4, "bf16": 2}[kind]):
        z = (base + q * step) & WORD
        z ^= z >> 15
        z = z * 0x2C1B3C6D & WORD
        z ^= z >> 12
        if kind == "int8":
            row += [byte - 256 * (byte > 127) for byte in z.to_bytes(4, "little")]
        else:
            z = z & 0x80608060 | 0x3F803F80
            row += [bf16_in_quarters(z & 0xFFFF), bf16_in_quarters(z >> 16)]
    return row


def bf16_in_quarters(half: int) -> int:
    sign, exponent, mantissa = half >> 15, half >> 7 & 0xFF, half & 0x7F
    quarters = 4 * (1 + mantissa / 128) * 2.0 ** (exponent - 127)
    assert quarters in (4, 5, 6, 7)
    return -int(quarters) if sign else int(quarters)


def slow_tile(kind: TileKind, seed: bytes, inner: int, columns: int, t: int) -> bytes:
    tag_a, tag_b = {"int8": (0x41, 0x42), "bf16": (0x61, 0x62)}[kind]
    a = [slow_row(kind, seed, tag_a, t // columns * 64 + r, inner) for r in range(64)]
    b = [slow_row(kind, seed, tag_b, t % columns * 64 + r, inner) for r in range(64)]
    c = [[sum(x * y for x, y in zip(left, right, strict=True)) & WORD for right in b] for left in a]
    lanes = []
    for lane in range(32):
        g, p, x = lane // 4, 2 * (lane % 4), [lane, t, tag_a, columns]
        for m in range(4):
            for n in range(8):
                top, bottom = c[16 * m + g], c[16 * m + g + 8]
                x = slow_absorb(x, [*top[8 * n + p : 8 * n + p + 2], *bottom[8 * n + p : 8 * n + p + 2]])
        lanes.append(x)
    return slow_digest(lanes)


# Mixing.


def arrays(*values: int) -> mixing.State:
    a, b, c, d = (np.array([value], np.uint32) for value in values)
    return a, b, c, d


def test_the_quarter_round_is_that_of_rfc_8439_2_1_1() -> None:
    x = mixing.quarter_round(arrays(0x11111111, 0x01020304, 0x9B8D6F43, 0x01234567))
    assert [int(word[0]) for word in x] == [0xEA2A92F4, 0xCB1CF8CE, 0x4581472E, 0x5881C4BB]


def test_the_block_function_is_that_of_rfc_8439_2_3_2() -> None:
    key, nonce = bytes(range(32)), bytes.fromhex("000000090000004a00000000")
    state = np.array([*little(b"expand 32-byte k" + key), 1, *little(nonce)], np.uint32)
    given_in = np.stack([state, state ^ 1], axis=1)
    blocks = mixing.chacha_block(given_in)
    assert blocks[:, 0].tobytes().hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert blocks[:, 1].tolist() == slow_block((state ^ 1).tolist())
    assert given_in[0, 0] == 0x61707865, "the argument was overwritten"


@given(st.lists(st.integers(0, WORD), min_size=8, max_size=8), st.integers(0, 9))
def test_mixing_and_absorbing_agree_with_plain_integers(values: list[int], n: int) -> None:
    x, w = arrays(*values[:4]), arrays(*values[4:])
    assert [int(word[0]) for word in mixing.mix(x, n)] == slow_mix(values[:4], n)
    assert [int(word[0]) for word in mixing.absorb(x, w)] == slow_absorb(values[:4], values[4:])


def test_rounds_in_place_refuse_an_array_they_would_have_to_copy() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        mixing.Rounds(np.zeros((8, 16), np.uint32).T)


# Fill.


@given(st.binary(min_size=32, max_size=32), st.integers(1, 3), st.integers(0, 2**40))
def test_a_unit_agrees_with_plain_integers(seed: bytes, iterations: int, number: int) -> None:
    found = fill.units(seed, iterations, np.array([number, number + 1], np.uint64))
    assert found.tolist() == [slow_unit(seed, iterations, number + at) for at in range(2)]


@pytest.mark.parametrize("count", ODD_SIZES)
def test_a_unit_is_the_same_whatever_is_computed_beside_it(count: int) -> None:
    numbers = np.arange(count, dtype=np.uint64)
    found = fill.units(SEED, 1, numbers[::-1])
    assert np.array_equal(found[[0, -1]], fill.units(SEED, 1, numbers[[-1, 0]]))


def test_a_block_is_eight_units_in_a_row() -> None:
    expected = fill.units(SEED, 2, np.arange(80, 88, dtype=np.uint64)).ravel()
    assert np.array_equal(fill.blocks(SEED, 2, np.array([10], np.uint64))[0], expected)


def test_seed_number_and_iterations_all_matter() -> None:
    one = np.array([5], np.uint64)
    variants = [
        fill.units(SEED, 2, one),
        fill.units(SEED, 3, one),
        fill.units(SEED[::-1], 2, one),
        fill.units(SEED, 2, one + np.uint64(2**32)),
    ]
    assert len({unit.tobytes() for unit in variants}) == 4


# Walk.


@given(
    st.binary(min_size=16, max_size=16),
    st.integers(0, WORD - 1),
    st.integers(1, 4),
    st.sampled_from([1, 3, 255, 2**16 + 1, 2**31 - 1, 2**31]),
)
def test_a_chain_agrees_with_plain_integers(nonce: bytes, first: int, steps: int, blocks: int) -> None:
    def block(number: int) -> list[int]:
        assert 0 <= number < blocks
        return [(number * 0x9E3779B1 + word) & WORD for word in range(128)]

    def read(numbers: Numbers) -> Words:
        return np.array([block(number) for number in numbers.tolist()], np.uint32)

    chains = np.array([first, first + 1], np.uint32)
    expected = b"".join(slow_walk(nonce, first + at, steps, blocks, block) for at in range(2))
    assert walk.digests(nonce, chains, steps, blocks, read) == expected


def test_a_chain_that_skips_a_block_or_reads_another_word_has_another_digest() -> None:
    chains, seen = np.arange(3, dtype=np.uint32), list[Numbers]()

    def honest(numbers: Numbers) -> Words:
        seen.append(numbers.copy())
        return fill.blocks(SEED, 1, numbers)

    right = walk.digests(NONCE, chains, 6, 50, honest)
    spoiled = int(seen[-1][0])

    def without_one_bit(numbers: Numbers) -> Words:
        found = fill.blocks(SEED, 1, numbers)
        found[numbers == spoiled, 127] ^= 1
        return found

    assert walk.digests(NONCE, chains, 6, 50, without_one_bit)[:8] != right[:8]
    assert walk.digests(NONCE, chains, 5, 50, honest) != right


def test_chains_are_the_same_whatever_is_walked_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = np.arange(7, dtype=np.uint32)

    def read(numbers: Numbers) -> Words:
        return fill.blocks(SEED, 1, numbers)

    together = walk.digests(NONCE, chains, 3, 9, read)
    monkeypatch.setattr(walk, "_SLICE", 2)
    assert walk.digests(NONCE, chains, 3, 9, read) == together


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**31))
def test_an_address_is_the_exact_high_half_of_a_128_bit_product(h: int, blocks: int) -> None:
    x = np.zeros((4, 1, 32), np.uint32)
    x[1, 0, 7], x[0, 0, 9] = h >> 32, h & WORD
    assert walk.addresses((x[0], x[1], x[2], x[3]), blocks).tolist() == [h * blocks >> 64]


# Tiles.


@pytest.mark.parametrize("kind", ["int8", "bf16"])
@pytest.mark.parametrize(("columns", "tile"), [(1, 0), (3, 7)])
def test_a_tile_agrees_with_plain_integers(kind: TileKind, columns: int, tile: int) -> None:
    found = tiles.digests(kind, NONCE, 64, columns, np.array([tile], np.uint32))
    assert found == slow_tile(kind, NONCE, 64, columns, tile)


@pytest.mark.parametrize("kind", ["int8", "bf16"])
def test_entries_agree_with_plain_integers(kind: TileKind) -> None:
    rows = np.array([0, 1, 63, 2**31], np.uint32)
    found = tiles.operand(kind, NONCE, 0x41, rows, 96)
    assert found.tolist() == [slow_row(kind, NONCE, 0x41, row, 96) for row in rows.tolist()]


@pytest.mark.parametrize("kind", ["int8", "bf16"])
def test_a_product_over_many_slices_is_the_exact_integer_product(kind: TileKind) -> None:
    inner, rows = 3 * 1024 + 32, np.arange(64, dtype=np.uint32)
    a, b = (
        tiles.operand(kind, NONCE, tag, rows + np.uint32(64 * at), inner).astype(np.int64)
        for tag, at in zip(TAGS[kind], (2, 5), strict=True)
    )
    assert np.array_equal(tiles.product(kind, NONCE, inner, 2, 5), a @ b.T)


@pytest.mark.parametrize(("kind", "extreme"), [("int8", -128), ("bf16", 7), ("bf16", -7)])
def test_a_product_of_nothing_but_the_largest_entries_is_exact(
    monkeypatch: pytest.MonkeyPatch, kind: TileKind, extreme: int
) -> None:
    """The bound itself: 1024 products of -128 * -128 are 2^24, the last whole number float32 is sure of."""

    def entries(self: object, kind: TileKind, first: int, last: int) -> tiles.Entries:
        return np.full((64, last - first), extreme, np.float32)

    monkeypatch.setattr(tiles.RowKeys, "entries", entries)
    inner = 131_040
    assert (tiles.product(kind, NONCE, inner, 0, 0) == extreme * extreme * inner).all()
    assert extreme * extreme * inner < 2**31, "it would not fit the GPU's accumulator"


def test_the_largest_bf16_sum_fits_a_float32_accumulator_in_every_order() -> None:
    assert 7 * 7 * 131_040 < 2**24, "in sixteenths: below 2^24 every partial sum is a float32"


def test_tiles_are_the_same_whatever_is_computed_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.array([5, 0, 3], np.uint32)
    together = tiles.digests("int8", NONCE, 32, 2, numbers)
    monkeypatch.setattr(tiles, "_TILES_SLICE", 2)
    assert tiles.digests("int8", NONCE, 32, 2, numbers) == together


def test_kind_seed_place_and_shape_all_matter() -> None:
    one = np.array([3], np.uint32)
    variants = [
        tiles.digests("int8", NONCE, 64, 2, one),
        tiles.digests("bf16", NONCE, 64, 2, one),
        tiles.digests("int8", NONCE[::-1], 64, 2, one),
        tiles.digests("int8", NONCE, 96, 2, one),
        tiles.digests("int8", NONCE, 64, 3, one),
        tiles.digests("int8", NONCE, 64, 2, one + np.uint32(1)),
    ]
    assert len(set(variants)) == 6


@pytest.mark.parametrize(("inner", "columns"), [(0, 1), (33, 1), (131_072, 1), (32, 0)])
def test_a_product_that_could_overflow_or_has_no_shape_is_refused(inner: int, columns: int) -> None:
    with pytest.raises(ValueError, match="not a product"):
        tiles.digests("int8", NONCE, inner, columns, np.array([0], np.uint32))


# Launch chain.


@given(st.binary(min_size=16, max_size=16), st.integers(0, 3))
def test_the_launch_chain_agrees_with_the_page(start: bytes, rounds: int) -> None:
    result = start
    for number in range(rounds):
        message = hashlib.sha256(result + number.to_bytes(4, "little")).digest()[:16]
        result = b"".join(word.to_bytes(4, "little") for word in slow_mix(little(message), 8))
    assert launches.chain(start, rounds) == result
