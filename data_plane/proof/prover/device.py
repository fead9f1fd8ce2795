"""The port to a GPU, which CUDA and the emulation implement.

A device is used by one thread; several devices are used at the same time. Long work is divided into slices, so that the
prover can hash one slice while the device computes the next.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

from collections.abc import Iterator
from typing import Protocol

from data_plane.proof.protocol.messages import GpuIdentity, Library, SmGaps, Source, TileKind


class DeviceError(Exception):
    """The device or its driver cannot go on. `code` is one of the codes of messages.Refused."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Device(Protocol):
    """One prepared GPU: it has a context and compiled kernels, and its clocks are at their speed under load."""

    def identity(self) -> GpuIdentity: ...

    def launch(self, message: bytes) -> bytes:
        """One launch of the `echo` kernel, which takes 16 bytes and returns 16 bytes. Nothing overlaps with it."""
        ...

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        """Allocate the memory and fill it. Returns the kernel time in microseconds.

        A second fill replaces the first. Raises DeviceError `out_of_memory`, with the free memory in its detail.
        """
        ...

    def walk(self, nonce: bytes, chains: int, steps: int) -> "Iterator[bytes]":
        """The digests of the chains 0 .. chains-1 over the filled memory, in this order, slice by slice."""
        ...

    def tiles(self, kind: TileKind, seed: bytes, inner: int, columns: int, tiles: int) -> "Iterator[bytes]":
        """The digests of the tiles 0 .. tiles-1, in this order, slice by slice."""
        ...

    def busy_us(self) -> int:
        """The kernel time of the last walk or tiles in microseconds, according to the device's own events."""
        ...

    def gaps(self, milliseconds: int, threshold_us: int) -> "tuple[SmGaps, ...]":
        """Read the clock on every multiprocessor continuously, and count its jumps by more than the threshold."""
        ...

    def throttle(self) -> "int | None":
        """NVML's current clocks-event reason bits; None if it does not say."""
        ...

    def memory_free(self) -> int:
        """The card's free memory in bytes."""
        ...

    def release(self) -> None:
        """Release the filled memory."""
        ...

    def close(self) -> None:
        """Release everything. Never raises."""
        ...


class Machine(Protocol):
    """All GPUs of one machine, with their driver."""

    source: Source
    driver: str
    cuda: str
    kernels_sha256: bytes
    libraries: "tuple[Library, ...]"
    devices: "tuple[Device, ...]"
