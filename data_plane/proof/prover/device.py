"""One GPU as the prover uses it: the port that CUDA and the emulation both implement.

Calls on one device come from one thread; devices are used side by side. Long work is cut into slices, so
that the prover can hash one slice while the device computes the next.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

from collections.abc import Iterator
from typing import Protocol

from data_plane.proof.protocol.messages import GpuIdentity, Library, SmGaps, Source, TileKind


class DeviceError(Exception):
    """The device, or its driver, cannot go on. `code` is one of those in messages.Refused."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Device(Protocol):
    """One GPU, prepared: context made, kernels compiled, clocks warm."""

    def identity(self) -> GpuIdentity: ...

    def launch(self, message: bytes) -> bytes:
        """One launch of the `echo` kernel: 16 bytes in, 16 bytes back, nothing overlapped."""
        ...

    def fill(self, seed: bytes, iterations: int, blocks: int) -> int:
        """Take the memory and fill it. Answers the kernel time in microseconds.

        A second fill replaces the first. Raises DeviceError `out_of_memory` with what there is in its detail.
        """
        ...

    def walk(self, nonce: bytes, chains: int, steps: int) -> "Iterator[bytes]":
        """Digests of chains 0 .. chains-1 over the filled memory, in order, slice by slice."""
        ...

    def tiles(self, kind: TileKind, seed: bytes, inner: int, columns: int, tiles: int) -> "Iterator[bytes]":
        """Digests of tiles 0 .. tiles-1, in order, slice by slice."""
        ...

    def busy_us(self) -> int:
        """Kernel time of the last walk or tiles, microseconds, by the device's own events."""
        ...

    def gaps(self, milliseconds: int, threshold_us: int) -> "tuple[SmGaps, ...]":
        """Spin on every multiprocessor and count how often its clock jumped by more than the threshold."""
        ...

    def throttle(self) -> "int | None":
        """NVML's clocks-event reason bits now; None where it does not say."""
        ...

    def memory_free(self) -> int:
        """Bytes free on the card now."""
        ...

    def release(self) -> None:
        """Give the filled memory back."""
        ...

    def close(self) -> None:
        """Give everything back. Never raises."""
        ...


class Machine(Protocol):
    """All GPUs of one machine and the software between."""

    source: Source
    driver: str
    cuda: str
    kernels_sha256: bytes
    libraries: "tuple[Library, ...]"
    devices: "tuple[Device, ...]"
