"""A GPU in use: its context, the compiled kernels, and the buffers for digests.

A context is current in one thread only, so every use begins with `bind`. `close` releases everything that was made here
in reverse order, even if making the rest has failed.
"""

import ctypes
import threading
from contextlib import ExitStack, suppress
from ctypes import byref, c_uint32, c_uint64, c_void_p

from data_plane.proof.protocol.messages import DIGEST_BYTES
from data_plane.proof.prover.cuda import Driver
from data_plane.proof.prover.device import DeviceError
from data_plane.proof.prover.kernels import KERNELS, Kernel

_bound = threading.local()
"""The context that is current in this thread."""


class Launch:
    """A kernel with memory for its parameters. They are set by name, and a launch uses their current values."""

    def __init__(self, driver: Driver, function: c_void_p, kernel: Kernel) -> None:
        self.kernel = kernel
        self._driver = driver
        self._function = function
        self._values = {
            name: c_uint32() if width == "u32" else c_uint64() for name, width in kernel.parameters
        }
        places = [ctypes.addressof(value) for value in self._values.values()]
        self._places = (c_void_p * len(places))(*places)

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self._values[name].value = value

    def words(self, name: str, count: int) -> "list[c_uint32 | c_uint64]":
        """The memory of the parameters `name`0, `name`1, ..., from which a launch reads."""
        return [self._values[f"{name}{at}"] for at in range(count)]

    def set_words(self, name: str, content: bytes) -> None:
        """Set the parameters `name`0, `name`1, ... to the little-endian words of `content`."""
        for at, room in enumerate(self.words(name, len(content) // 4)):
            room.value = int.from_bytes(content[4 * at : 4 * at + 4], "little")

    def __call__(self, blocks: int, stream: c_void_p) -> None:
        self._driver.cuLaunchKernel(
            self._function, blocks, 1, 1, self.kernel.threads, 1, 1, 0, stream, self._places, None
        )


class Lane:
    """A stream, with memory on the GPU and pinned memory on the host for the digests of one slice."""

    def __init__(self, stream: c_void_p, done: c_void_p, digests: int, host: c_void_p) -> None:
        self.stream = stream
        self.done = done
        """The event that the slice has arrived in `host`."""
        self.digests = digests
        self.host = host


class Context:
    """A device's context and everything in it, used by one thread at a time."""

    def __init__(self, driver: Driver, device: int) -> None:
        self.driver = driver
        self.device = device
        self._stack = ExitStack()
        handle = c_void_p()
        driver.cuCtxCreate_v2(byref(handle), 0, device)
        self._handle = handle
        self._stack.callback(driver.cuCtxDestroy_v2, handle)
        _bound.to = self

    def bind(self) -> None:
        """Make this the current context of this thread."""
        if getattr(_bound, "to", None) is not self:
            self.driver.cuCtxSetCurrent(self._handle)
            _bound.to = self

    def compile(self, text: bytes) -> "dict[str, Launch]":
        """All kernels of the text, by name. Takes seconds, unless the driver has them in its cache."""
        self.bind()
        module = self.driver.compiled(text)
        self._stack.callback(self.driver.cuModuleUnload, module)
        return {
            kernel.name: Launch(self.driver, self.driver.function(module, kernel.name), kernel)
            for kernel in KERNELS
        }

    def lane(self, digests_max: int) -> Lane:
        size = digests_max * DIGEST_BYTES
        return Lane(self.stream(), self.event(), self.memory(size), self.pinned(size))

    def stream(self) -> c_void_p:
        stream = self.driver.stream()
        self._stack.callback(self.driver.cuStreamDestroy_v2, stream)
        return stream

    def event(self) -> c_void_p:
        event = self.driver.event()
        self._stack.callback(self.driver.cuEventDestroy_v2, event)
        return event

    def memory(self, size: int) -> int:
        address = self.driver.allocated(size)
        self._stack.callback(self.driver.cuMemFree_v2, address)
        return address

    def pinned(self, size: int) -> c_void_p:
        host = self.driver.pinned(size)
        self._stack.callback(self.driver.cuMemFreeHost, host)
        return host

    def close(self) -> None:
        """Release everything. Never raises, since nothing more can be done about a broken GPU."""
        with suppress(DeviceError):
            self.bind()
        with suppress(DeviceError):
            self._stack.close()
