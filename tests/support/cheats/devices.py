"""Devices that cheat, each with the best strategy that we know, and charged with the time that this really takes.

A cheat knows the protocol and our code. Its work between orders costs no time. Its work between an order and the answer
takes the time that the card which it really is would need, with perfect overlap. Cheats in the messages themselves are
in `attackers`.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from data_plane.proof.protocol.arithmetic import fill, launches, walk
from data_plane.proof.protocol.arithmetic.constants import UNITS_PER_BLOCK
from data_plane.proof.protocol.arithmetic.mixing import Words
from data_plane.proof.protocol.messages import DIGEST_BYTES, GpuIdentity, TileKind
from data_plane.proof.prover.emulation.device import EmulatedDevice, Numbers, Work
from data_plane.simulation.timing import CardTimer


class MissingMemory(EmulatedDevice):
    """Stores only a part of what it filled. It fetches the rest from the host's memory and computes it again.

    `fetched` is the share of missing blocks that are fetched; None is the best mix, where fetching and computing take the
    same time. Meanwhile the card reads the blocks that it has. The answers are right.
    """

    def __init__(
        self, identity: GpuIdentity, timer: CardTimer, *, missing: float, fetched: "float | None" = None
    ) -> None:
        super().__init__(identity, timer)
        self._card = timer
        self._missing = missing
        self._fetched = fetched
        self._iterations = 0

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        self._iterations = iterations
        return super().fill(seed, iterations, blocks)

    def _walked(self, nonce: bytes, chains: Numbers, steps: int) -> bytes:
        stored = round(len(self._memory) * (1 - self._missing))
        missed = 0

        def read(blocks: NDArray[np.uint64]) -> Words:
            nonlocal missed
            missed += int(np.count_nonzero(blocks >= stored))
            return self._memory[blocks]

        digests = walk.digests(nonce, chains, steps, len(self._memory), read)
        share = self._best_share() if self._fetched is None else self._fetched
        fetched = round(missed * share)
        per_block = UNITS_PER_BLOCK * self._iterations
        self._timer.charge(
            Work(
                reads=len(chains) * steps - missed,
                fetched=fetched,
                regenerated=(missed - fetched) * per_block,
            )
        )
        return digests

    def _best_share(self) -> float:
        fetching = self._card.seconds(Work(fetched=1))
        regenerating = self._card.seconds(Work(regenerated=UNITS_PER_BLOCK * self._iterations))
        return regenerating / (fetching + regenerating)


class ForgottenMemory(EmulatedDevice):
    """Stores only a part of what it filled, and reads zeros instead of the rest, which takes no time."""

    def __init__(self, identity: GpuIdentity, timer: CardTimer, *, missing: float) -> None:
        super().__init__(identity, timer)
        self._missing = missing

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        microseconds = super().fill(seed, iterations, blocks)
        self._memory[round(blocks * (1 - self._missing)) :] = 0
        return microseconds


class HalfBlocks(EmulatedDevice):
    """Stores the first units of every block, and computes the others whenever it reads the block."""

    STORED_UNITS = 4

    def __init__(self, identity: GpuIdentity, timer: CardTimer) -> None:
        super().__init__(identity, timer)
        self._iterations = 0

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        self._iterations = iterations
        return super().fill(seed, iterations, blocks)

    def _walked(self, nonce: bytes, chains: Numbers, steps: int) -> bytes:
        reads = len(chains) * steps
        computed = UNITS_PER_BLOCK - self.STORED_UNITS
        self._timer.charge(Work(reads=reads, regenerated=reads * computed * self._iterations))
        return walk.digests(nonce, chains, steps, len(self._memory), self._memory.__getitem__)


class LazyFill(MissingMemory):
    """Claims at once that it has filled its memory, and computes every block when it is read."""

    def __init__(self, identity: GpuIdentity, timer: CardTimer) -> None:
        super().__init__(identity, timer, missing=1.0, fetched=0.0)

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        # As the parent class does, but without charging the time. The returned time is invented.
        self._iterations = iterations
        self._memory = fill.blocks(seed, iterations, np.arange(blocks, dtype=np.uint64))
        return round(self._card.seconds(Work(filled=blocks * UNITS_PER_BLOCK * iterations)) * 1e6)


class Skipping(EmulatedDevice):
    """Skips a share of the chains, of the tiles, or of both, and commits to random digests instead.

    The card is slower by the same share, so it answers when an honest card would.
    """

    def __init__(
        self,
        identity: GpuIdentity,
        timer: CardTimer,
        *,
        chance: random.Random,
        chains: float = 0.0,
        tiles: float = 0.0,
    ) -> None:
        super().__init__(identity, timer)
        self._chance = chance
        self._chains = chains
        self._tiles = tiles

    def _walked(self, nonce: bytes, chains: Numbers, steps: int) -> bytes:
        return self._some_made_up(super()._walked(nonce, chains, steps), self._chains)

    def _multiplied(self, kind: TileKind, seed: bytes, inner: int, columns: int, numbers: Numbers) -> bytes:
        return self._some_made_up(super()._multiplied(kind, seed, inner, columns, numbers), self._tiles)

    def _some_made_up(self, digests: bytes, share: float) -> bytes:
        """Replace each digest by a random one with probability `share`."""
        made = bytearray(digests)
        for at in range(0, len(made), DIGEST_BYTES):
            if self._chance.random() < share:
                made[at : at + DIGEST_BYTES] = self._chance.randbytes(DIGEST_BYTES)
        return bytes(made)


class InRotation:
    """Runs the GPUs of a machine one after the other, and begins with another one at every order.

    This is for one card that poses as several: after as many tries, each of them was first, and therefore in time, once.
    """

    def __init__(self) -> None:
        self._order = 0

    def __call__(self, jobs: Sequence[Callable[[], None]]) -> None:
        self._order += 1
        first = self._order % len(jobs)
        for job in (*jobs[first:], *jobs[:first]):
            job()


class ChainOnCpu(EmulatedDevice):
    """Uses a GPU at the other end of a network, and computes the launch chain on its own CPU.

    The launches of fill, walk and tiles go over the network. Each slice of a miniature stands for a hundred launches, which
    is more than a real phase has.
    """

    SLICE = Work(launches=1)

    def launch(self, message: bytes) -> bytes:
        return launches.launch(message)  # No time is charged, since a CPU does 2,000 launches in 0.02 s.

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        self._timer.charge(self.SLICE)
        return super().fill(seed, iterations, blocks)

    def _walked(self, nonce: bytes, chains: Numbers, steps: int) -> bytes:
        self._timer.charge(self.SLICE)
        return super()._walked(nonce, chains, steps)

    def _multiplied(self, kind: TileKind, seed: bytes, inner: int, columns: int, numbers: Numbers) -> bytes:
        self._timer.charge(self.SLICE)
        return super()._multiplied(kind, seed, inner, columns, numbers)


class Foresighted(EmulatedDevice):
    """Computes walk and tiles in advance, for a nonce and a seed that it expects.

    When the order comes, it has the answer already, and only waits as long as an honest card would work.
    """

    GUESS = bytes(range(16))

    def walk(self, nonce: bytes, chains: int, steps: int) -> "Iterator[bytes]":
        return super().walk(self._expected(nonce), chains, steps)

    def tiles(self, kind: TileKind, seed: bytes, inner: int, columns: int, tiles: int) -> "Iterator[bytes]":
        return super().tiles(kind, self._expected(seed), inner, columns, tiles)

    def _expected(self, asked: bytes) -> bytes:
        return self.GUESS[: len(asked)]
