"""`device.Device` over CUDA: launches the proof's kernels in slices that are short but keep a GPU busy.

Two slices are always running, each in a stream of its own. The GPU starts the next slice as soon as the last one leaves
multiprocessors idle, and meanwhile the host hashes the slice before. The digests of a slice are copied to pinned memory
in the stream of its kernel, while the next kernel runs.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import Any

from data_plane.proof.protocol.arithmetic.constants import SIDE, UNITS_PER_BLOCK
from data_plane.proof.protocol.messages import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    NONCE_BYTES,
    GpuIdentity,
    SmGaps,
    TileKind,
)
from data_plane.proof.prover.cuda import (
    ATTRIBUTE_BUS_BITS,
    ATTRIBUTE_CAPABILITY_MAJOR,
    ATTRIBUTE_CAPABILITY_MINOR,
    ATTRIBUTE_ECC,
    ATTRIBUTE_L2_BYTES,
    ATTRIBUTE_MEMORY_KHZ,
    ATTRIBUTE_MPS,
    ATTRIBUTE_SM_KHZ,
    ATTRIBUTE_SMS,
    Driver,
)
from data_plane.proof.prover.cuda_context import Context, Lane, Launch
from data_plane.proof.prover.device import DeviceError
from data_plane.proof.prover.kernels import ECHO_KERNEL, FILL_KERNEL, GAPS_KERNEL, TILES_KERNELS, WALK_KERNEL

_WORDS = Struct("<4I")
_ROW = Struct("<4I")
"""The result of one block of `gaps`: multiprocessor, samples, gaps, longest gap in microseconds."""
WARM_INNER = 16_384
"""The inner dimension of the tiles that are computed for the warm-up."""


@dataclass(frozen=True)
class SliceSizes:
    """How much one launch does, for each multiprocessor, whose speed differs little between generations.

    A launch takes 30 to 250 ms on a data-centre card, and less than a second on the slowest card that we rent; a
    display's watchdog would end it after two seconds. These times are computed from data sheets and not measured.
    """

    fill: int = 1 << 25
    """Units times iterations: 0.2 s."""
    walk: int = 1 << 20
    """Blocks that are read, half a GiB: 15 ms if a multiprocessor's share of the bandwidth is 36 GB/s (B200), 150 ms
    if it is 3.6 GB/s (L4)."""
    tiles: int = 1 << 37
    """Multiply-adds: 40 ms (H100, int8) to 220 ms (L40, bf16)."""
    digests: int = 1 << 20
    """Digests of one slice for the whole device: 8 MiB of pinned memory for each of the two lanes."""


class CudaDevice:
    """One GPU. Whatever the driver answers, only DeviceError is raised."""

    def __init__(
        self,
        driver: Driver,
        device: int,
        index: int,
        *,
        claimed: "dict[str, Any]",
        throttle: "Callable[[], int | None]",
        sizes: "SliceSizes | None" = None,
    ) -> None:
        """Make the GPU's context. `claimed` is what sources other than CUDA say about it (claims.Claims.of)."""
        self._driver = driver
        self._index = index
        self._claimed = claimed
        self._sizes = sizes or SliceSizes()
        self._sms = driver.attribute(ATTRIBUTE_SMS, device)
        self._memory = self._blocks = 0
        self._device = device
        self._context = Context(driver, device)
        self.throttle = throttle

    def prepare(self, text: bytes) -> None:
        """Compile the kernels and allocate what they need. The driver caches the compiled code for the next GPU."""
        context = self._context
        self._launches = context.compile(text)
        self._lanes = tuple(context.lane(self._sizes.digests) for _ in range(2))
        self._began, self._ended = context.event(), context.event()
        self._last = self._began
        self._answer = context.pinned(max(NONCE_BYTES, self._sms * _ROW.size))
        answer = self._driver.mapped(self._answer)
        self._echo = self._launches[ECHO_KERNEL.name]
        self._echo.set(answer=answer)
        self._message = self._echo.words("message", 4)
        self._launches[GAPS_KERNEL.name].set(found=answer)

    def warm_up(self, seconds: float, monotonic: "Callable[[], float]") -> None:
        """Work until the clocks have reached their speed under load."""
        end = monotonic() + seconds
        per_slice = self._tiles_per_slice(WARM_INNER)
        while monotonic() < end:
            for _ in self.tiles("int8", bytes(NONCE_BYTES), WARM_INNER, 1, per_slice):
                pass

    # ---- device.Device ---------------------------------------------------------------------------------------

    def identity(self) -> GpuIdentity:
        driver, device = self._driver, self._device

        def attribute(number: int) -> int:
            return driver.attribute(number, device)

        return GpuIdentity(
            index=self._index,
            cuda_name=driver.name(device),
            cuda_uuid=driver.uuid(device),
            cuda_memory=driver.memory(device),
            cuda_free=self.memory_free(),
            cuda_pci_bus=driver.pci_bus(device),
            cuda_capability=f"{attribute(ATTRIBUTE_CAPABILITY_MAJOR)}.{attribute(ATTRIBUTE_CAPABILITY_MINOR)}",
            cuda_sms=self._sms,
            cuda_sm_khz=attribute(ATTRIBUTE_SM_KHZ),
            cuda_memory_khz=attribute(ATTRIBUTE_MEMORY_KHZ),
            cuda_bus_bits=attribute(ATTRIBUTE_BUS_BITS),
            cuda_l2=attribute(ATTRIBUTE_L2_BYTES),
            cuda_ecc=bool(attribute(ATTRIBUTE_ECC)),
            cuda_mps=bool(driver.attribute(ATTRIBUTE_MPS, device, unknown=0)),
            **self._claimed,
        )

    def launch(self, message: bytes) -> bytes:
        # A proof times 2,000 of these together, so this does nothing but launch and wait.
        self._context.bind()
        stream = self._lanes[0].stream
        for room, word in zip(self._message, _WORDS.unpack(message), strict=True):
            room.value = word
        self._echo(1, stream)
        self._driver.cuStreamSynchronize(stream)
        return ctypes.string_at(self._answer, NONCE_BYTES)

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        self.release()
        self._take(blocks)
        fill = self._launches[FILL_KERNEL.name]
        fill.set(memory=self._memory, iterations=iterations)
        fill.set_words("seed", seed)
        stream = self._lanes[0].stream
        self._driver.cuEventRecord(self._began, stream)
        for first, count in _slices(
            blocks * UNITS_PER_BLOCK, self._whole_waves(fill, self._sizes.fill // iterations)
        ):
            fill.set(first=first, count=count)
            fill(fill.kernel.blocks(count), stream)
        self._driver.cuEventRecord(self._ended, stream)
        self._driver.cuEventSynchronize(self._ended)
        self._last = self._ended
        return self.busy_us()

    def walk(self, nonce: bytes, chains: int, steps: int) -> "Iterator[bytes]":
        walk = self._launches[WALK_KERNEL.name]
        walk.set(memory=self._memory, blocks=self._blocks, steps=steps)
        walk.set_words("nonce", nonce)
        per_slice = self._whole_waves(walk, self._sizes.walk // steps)
        return self._digests(walk, chains, min(per_slice, self._sizes.digests))

    def tiles(self, kind: TileKind, seed: bytes, inner: int, columns: int, tiles: int) -> "Iterator[bytes]":
        launch = self._launches[TILES_KERNELS[kind].name]
        launch.set(inner=inner, columns=columns)
        launch.set_words("seed", seed)
        return self._digests(launch, tiles, self._tiles_per_slice(inner))

    def busy_us(self) -> int:
        self._context.bind()
        return self._driver.elapsed_us(self._began, self._last)

    def gaps(self, milliseconds: int, threshold_us: int) -> "tuple[SmGaps, ...]":
        self._context.bind()
        stream = self._lanes[0].stream
        launch = self._launches[GAPS_KERNEL.name]
        launch.set(duration=milliseconds * 1_000_000, threshold=threshold_us * 1000)
        launch(self._sms, stream)
        self._driver.cuStreamSynchronize(stream)
        rows = _ROW.iter_unpack(ctypes.string_at(self._answer, self._sms * _ROW.size))
        return tuple(SmGaps(*row) for row in sorted(rows))

    def memory_free(self) -> int:
        self._context.bind()
        return self._driver.free()

    def release(self) -> None:
        self._context.bind()
        if self._memory:
            taken, self._memory, self._blocks = self._memory, 0, 0
            self._driver.cuMemFree_v2(taken)

    def close(self) -> None:
        with suppress(DeviceError):
            self.release()
        self._context.close()

    # ---- slices ----------------------------------------------------------------------------------------------

    def _take(self, blocks: int) -> None:
        wanted = blocks * BLOCK_BYTES
        try:
            self._memory = self._driver.allocated(wanted)
        except DeviceError as error:
            if error.code != "out_of_memory":
                raise
            raise DeviceError(
                error.code, f"{wanted} bytes wanted, {self._driver.free()} free: {error.detail}"
            ) from None
        self._blocks = blocks

    def _tiles_per_slice(self, inner: int) -> int:
        kernel = self._launches[TILES_KERNELS["int8"].name]
        return min(self._whole_waves(kernel, self._sizes.tiles // (inner * SIDE * SIDE)), self._sizes.digests)

    def _whole_waves(self, launch: Launch, per_sm: int) -> int:
        """About `per_sm` units of work for each multiprocessor, rounded so that all of them finish together."""
        wave = launch.kernel.resident * launch.kernel.work
        return self._sms * wave * max(1, per_sm // wave)

    def _digests(self, launch: Launch, count: int, per_slice: int) -> "Iterator[bytes]":
        flying: deque[tuple[Lane, int]] = deque()
        for number, (first, size) in enumerate(_slices(count, per_slice)):
            lane = self._lanes[number % len(self._lanes)]
            landed = self._land(*flying.popleft()) if len(flying) == len(self._lanes) else None
            self._context.bind()
            if number == 0:
                self._driver.cuEventRecord(self._began, lane.stream)
            launch.set(first=first, count=size, digests=lane.digests)
            launch(launch.kernel.blocks(size), lane.stream)
            self._driver.cuMemcpyDtoHAsync_v2(lane.host, lane.digests, size * DIGEST_BYTES, lane.stream)
            self._driver.cuEventRecord(lane.done, lane.stream)
            flying.append((lane, size))
            self._last = lane.done
            if landed is not None:
                yield landed
        while flying:
            yield self._land(*flying.popleft())

    def _land(self, lane: Lane, size: int) -> bytes:
        self._context.bind()
        self._driver.cuEventSynchronize(lane.done)
        return ctypes.string_at(lane.host, size * DIGEST_BYTES)


def _slices(count: int, size: int) -> "Iterator[tuple[int, int]]":
    """The first unit of each slice, and how many units it has."""
    for first in range(0, count, size):
        yield first, min(size, count - first)
