"""Our PTX text, executed instruction by instruction, does the arithmetic of numpy bit for bit."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.arithmetic.mixing import Words
from data_plane.proof.protocol.messages import TileKind
from data_plane.proof.prover import kernels
from tests.support import ptx

ENTRIES = ptx.read(kernels.text())
SEED = bytes(range(100, 132))
NONCE = bytes(range(7, 23))
UNTOUCHED = 0xDEADBEEF


def words(data: bytes) -> list[int]:
    return [int(word) for word in np.frombuffer(data, "<u4")]


def empty(count: int) -> Words:
    return np.full(count, UNTOUCHED, np.uint32)


def launched(
    kernel: kernels.Kernel,
    work: int,
    arguments: list[int],
    memory: ptx.Memory,
    clock: Iterator[int] | None = None,
) -> None:
    ptx.launch(ENTRIES[kernel.name], kernel.blocks(work), arguments, memory, clock or iter(()))


@pytest.mark.parametrize(("first", "count", "iterations"), [(0, 300, 1), (2**32 - 3, 5, 3)])
def test_the_fill_kernel_writes_what_numpy_computes_and_nothing_beyond(
    first: int, count: int, iterations: int
) -> None:
    memory, stored = ptx.Memory(), empty(16 * (count + 1))
    base = memory.place(stored) - 64 * first
    arguments = [base % 2**64, *words(SEED), iterations, first, count]
    launched(kernels.FILL_KERNEL, count, arguments, memory)
    expected = fill.units(SEED, iterations, np.arange(first, first + count, dtype=np.uint64))
    assert np.array_equal(stored[: 16 * count].reshape(count, 16), expected)
    assert (stored[16 * count :] == UNTOUCHED).all()


@pytest.mark.parametrize(("first", "count", "steps"), [(0, 2, 1), (1000, 19, 4), (5, 1, 7)])
def test_the_walk_kernel_leaves_the_digests_that_numpy_computes(first: int, count: int, steps: int) -> None:
    blocks = 37
    filled = fill.blocks(SEED, 1, np.arange(blocks, dtype=np.uint64))
    memory, digests = ptx.Memory(), empty(2 * (count + 1))
    arguments = [
        memory.place(filled.reshape(-1)),
        blocks,
        *words(NONCE),
        first,
        count,
        steps,
        memory.place(digests),
    ]
    launched(kernels.WALK_KERNEL, count, arguments, memory)
    chains = np.arange(first, first + count, dtype=np.uint32)
    expected = walk.digests(NONCE, chains, steps, blocks, lambda numbers: filled[numbers.astype(np.intp)])
    assert digests[: 2 * count].astype("<u4").tobytes() == expected
    assert (digests[2 * count :] == UNTOUCHED).all()


@pytest.mark.parametrize("kind", ["int8", "bf16"])
@pytest.mark.parametrize(("inner", "columns", "first", "count"), [(32, 1, 0, 1), (96, 3, 4, 5)])
def test_the_tile_kernels_leave_the_digests_that_numpy_computes(
    kind: TileKind, inner: int, columns: int, first: int, count: int
) -> None:
    memory, digests = ptx.Memory(), empty(2 * (count + 1))
    arguments = [*words(NONCE), inner, columns, first, count, memory.place(digests)]
    launched(kernels.TILES_KERNELS[kind], count, arguments, memory)
    numbers = np.arange(first, first + count, dtype=np.uint32)
    assert digests[: 2 * count].astype("<u4").tobytes() == tiles.digests(kind, NONCE, inner, columns, numbers)
    assert (digests[2 * count :] == UNTOUCHED).all()


def test_the_echo_kernel_does_the_gpu_s_half_of_a_round() -> None:
    memory, answer = ptx.Memory(), empty(4)
    launched(kernels.ECHO_KERNEL, 1, [*words(NONCE), memory.place(answer)], memory)
    assert answer.astype("<u4").tobytes() == launches.launch(NONCE)


def test_the_gaps_kernel_counts_jumps_over_the_threshold_and_reports_the_longest() -> None:
    readings = [1000, 2000, 2500, 9_002_500, 9_003_000, 9_503_000]
    undisturbed = list(range(20_000_000, 29_600_000, 100_000))
    memory, found = ptx.Memory(), empty(8)
    clock = iter([*readings, *undisturbed, 40_000_000])
    launched(kernels.GAPS_KERNEL, 2, [9_500_000, 200_000, memory.place(found)], memory, clock)
    assert list(found) == [100, 5, 2, 9000, 101, 95, 0, 100]
    assert list(clock) == [40_000_000], "it looked again after its time was up"


def test_a_gap_beyond_32_bits_of_nanoseconds_is_saturated() -> None:
    memory, found = ptx.Memory(), empty(4)
    launched(kernels.GAPS_KERNEL, 1, [1000, 200, memory.place(found)], memory, iter([0, 2**40]))
    assert list(found) == [100, 1, 1, 4_294_967]


class Endless(ptx.Memory):
    """A terabyte in which each word is a function of its address."""

    BASE = 1 << 60

    def find(self, address: int, count: int) -> Words:
        if address < self.BASE:
            return super().find(address, count)
        assert address % (4 * count) == 0
        first = (address - self.BASE) // 4
        return words_at(np.arange(first, first + count, dtype=np.uint64))


def words_at(index: NDArray[np.uint64]) -> Words:
    return (index * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)).astype(np.uint32)


def test_the_walk_kernel_reaches_every_block_of_the_largest_memory() -> None:
    blocks, count, met = 1 << 31, 6, list[int]()

    def read(numbers: NDArray[np.uint64]) -> Words:
        met.extend(numbers.tolist())
        return words_at(numbers[:, None] << np.uint64(7) | np.arange(128, dtype=np.uint64))

    memory, digests = Endless(), empty(2 * count)
    arguments = [Endless.BASE, blocks, *words(NONCE), 0, count, 5, memory.place(digests)]
    launched(kernels.WALK_KERNEL, count, arguments, memory)
    expected = walk.digests(NONCE, np.arange(count, dtype=np.uint32), 5, blocks, read)
    assert digests.astype("<u4").tobytes() == expected
    assert max(met) * 512 > 2**39, "no block beyond the lower half of the memory was met"
