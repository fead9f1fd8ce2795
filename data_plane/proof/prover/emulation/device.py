"""The honest emulation of a device with numpy: it really fills its memory and really computes its answers.

The arithmetic is exactly that of docs/gpu-proof.md, so all answers are right; only their time differs from a real
card's. The timer decides how long work takes: as long as numpy takes on a test machine (`WallTimer`), or as long as a
real card would take in a simulation (`simulation.timing.CardTimer`).

Runs inside the agent on Debian with python3-numpy (1.24), so nothing newer is used here.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.arithmetic.constants import SIDE, UNITS_PER_BLOCK
from data_plane.proof.protocol.arithmetic.mixing import Words
from data_plane.proof.protocol.messages import BLOCK_BYTES, GpuIdentity, Library, SmGaps, Source, TileKind
from data_plane.proof.prover.device import Device, DeviceError

BLOCKS_MAX = 1 << 14
"""8 MiB: the memory that an emulated card really has by default."""
SLICE_CHAINS = 1024
SLICE_TILES = 64
TILE_ENTRIES = SIDE * SIDE
"""The multiply-adds of a tile for each unit of the inner dimension."""

Numbers = NDArray[np.uint32]


@dataclass(frozen=True)
class Work:
    """Work of a device, all of it done at the same time."""

    launches: int = 0
    filled: int = 0
    """Units times iterations, for the fill."""
    reads: int = 0
    """Blocks that a walk reads at random from the card's own memory."""
    fetched: int = 0
    """Blocks that a walk fetches from the host's memory. An honest card fetches none."""
    regenerated: int = 0
    """Units times iterations that are computed during a walk. An honest card computes none."""
    int8: int = 0
    """Multiply-adds."""
    bf16: int = 0
    seconds: float = 0.0
    """Time spent waiting."""


class Timer(Protocol):
    """How long work takes."""

    def now(self) -> float:
        """Seconds on the timer's own clock."""
        ...

    def charge(self, work: Work) -> None:
        """Advance the clock by the time that this work takes."""
        ...


class WallTimer:
    """Real time: work takes as long as numpy takes."""

    def now(self) -> float:
        return time.monotonic()

    def charge(self, work: Work) -> None:
        """Does nothing, since the time has passed already."""


class EmulatedDevice:
    """`prover.device.Device` over numpy."""

    def __init__(
        self, identity: GpuIdentity, timer: "Timer | None" = None, blocks_max: int = BLOCKS_MAX
    ) -> None:
        self._identity = identity
        self._timer: Timer = timer or WallTimer()
        self._blocks_max = blocks_max
        self._memory: Words = np.empty((0), np.uint32)
        self._busy = 0.0

    def identity(self) -> GpuIdentity:
        return self._identity

    def launch(self, message: bytes) -> bytes:
        self._timer.charge(Work(launches=1))
        return launches.launch(message)

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        if blocks > self._blocks_max:
            raise DeviceError("out_of_memory", f"{self._blocks_max * BLOCK_BYTES} bytes free")
        began = self._timer.now()
        self._memory = fill.blocks(seed, iterations, np.arange(blocks, dtype=np.uint64))
        self._timer.charge(Work(filled=blocks * UNITS_PER_BLOCK * iterations))
        return _microseconds(self._timer.now() - began)

    def walk(self, nonce: bytes, chains: int, steps: int) -> "Iterator[bytes]":
        if not len(self._memory):
            raise DeviceError("bad_order", "a walk before the fill")
        began = self._timer.now()
        for first in range(0, chains, SLICE_CHAINS):
            digests = self._walked(nonce, _numbers(first, SLICE_CHAINS, chains), steps)
            self._busy = self._timer.now() - began
            yield digests

    def tiles(self, kind: TileKind, seed: bytes, inner: int, columns: int, tiles: int) -> "Iterator[bytes]":
        began = self._timer.now()
        for first in range(0, tiles, SLICE_TILES):
            digests = self._multiplied(kind, seed, inner, columns, _numbers(first, SLICE_TILES, tiles))
            self._busy = self._timer.now() - began
            yield digests

    def _walked(self, nonce: bytes, chains: Numbers, steps: int) -> bytes:
        self._timer.charge(Work(reads=len(chains) * steps))
        return walk.digests(nonce, chains, steps, len(self._memory), self._memory.__getitem__)

    def _multiplied(self, kind: TileKind, seed: bytes, inner: int, columns: int, numbers: Numbers) -> bytes:
        multiply_adds = len(numbers) * inner * TILE_ENTRIES
        self._timer.charge(Work(int8=multiply_adds) if kind == "int8" else Work(bf16=multiply_adds))
        return tiles.digests(kind, seed, inner, columns, numbers)

    def busy_us(self) -> int:
        return _microseconds(self._busy)

    def gaps(self, milliseconds: int, threshold_us: int) -> "tuple[SmGaps, ...]":  # noqa: ARG002
        """A reading every microsecond and no gap, since nobody else uses this device."""
        self._timer.charge(Work(seconds=milliseconds / 1000))
        return tuple(SmGaps(sm, milliseconds * 1000, 0, 0) for sm in range(self._identity.cuda_sms))

    def throttle(self) -> "int | None":
        return 0

    def memory_free(self) -> int:
        """What the emulated card would report: its free memory before the fill, minus what is filled now."""
        return max(0, self._identity.cuda_free - len(self._memory) * BLOCK_BYTES)

    def release(self) -> None:
        self._memory = self._memory[:0].copy()

    def close(self) -> None:
        self.release()


@dataclass
class EmulatedMachine:
    """`prover.device.Machine`. An honest one has the source `emulated`."""

    devices: "tuple[Device, ...]"
    driver: str
    cuda: str = "12.8"
    source: Source = "emulated"
    kernels_sha256: bytes = bytes(32)
    libraries: "tuple[Library, ...]" = ()


def _numbers(first: int, size: int, end: int) -> Numbers:
    return np.arange(first, min(first + size, end), dtype=np.uint32)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
