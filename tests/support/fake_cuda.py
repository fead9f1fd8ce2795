# ruff: noqa: N802 - the functions have the names that the library gives them
"""A CUDA driver in host memory, behind the C calling convention: what the agent binds, it really calls.

Every function is a C function pointer with the prototype of cuda.h, so a wrong argument type arrives here as a
wrong number. It is as strict as a driver, and stricter: work happens when somebody waits for it and not before,
objects belong to the context they were made in, parameters are read by the PTX that was loaded, every access is
within an allocation, and what was not given back before its context went is a leak.
"""

import ctypes
import mmap
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, c_float, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from struct import pack
from typing import Any, TypeVar, cast

import numpy as np

from data_plane.proof.protocol.arithmetic import fill, launches, tiles, walk
from data_plane.proof.protocol.messages import BLOCK_BYTES, DIGEST_BYTES, TileKind

T = TypeVar("T")

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, UNKNOWN = 1, 2, 201, 400, 600, 999
NAMES = {
    1: b"CUDA_ERROR_INVALID_VALUE",
    2: b"CUDA_ERROR_OUT_OF_MEMORY",
    46: b"CUDA_ERROR_DEVICE_UNAVAILABLE",
    218: b"CUDA_ERROR_INVALID_PTX",
    700: b"CUDA_ERROR_ILLEGAL_ADDRESS",
}
FIRST_HANDLE = 0x5A5A_0000_1000
"""Above 32 bits: a handle that was cut to an int is nobody's."""

OUT = STRING = HANDLE = c_void_p
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, OUT),
    "cuDriverGetVersion": (OUT,),
    "cuDeviceGetCount": (OUT,),
    "cuDeviceGet": (OUT, c_int),
    "cuDeviceGetName": (STRING, c_int, c_int),
    "cuDeviceGetAttribute": (OUT, c_int, c_int),
    "cuDeviceGetUuid_v2": (OUT, c_int),
    "cuDeviceGetPCIBusId": (STRING, c_int, c_int),
    "cuDeviceTotalMem_v2": (OUT, c_int),
    "cuCtxCreate_v2": (OUT, c_uint, c_int),
    "cuCtxDestroy_v2": (HANDLE,),
    "cuCtxSetCurrent": (HANDLE,),
    "cuMemGetInfo_v2": (OUT, OUT),
    "cuMemAlloc_v2": (OUT, c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (OUT, c_size_t, c_uint),
    "cuMemHostGetDevicePointer_v2": (OUT, c_void_p, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, HANDLE),
    "cuModuleLoadDataEx": (OUT, c_void_p, c_uint, c_void_p, c_void_p),
    "cuModuleUnload": (HANDLE,),
    "cuModuleGetFunction": (OUT, HANDLE, STRING),
    "cuLaunchKernel": (HANDLE, *(c_uint,) * 7, HANDLE, c_void_p, c_void_p),
    "cuStreamCreate": (OUT, c_uint),
    "cuStreamSynchronize": (HANDLE,),
    "cuStreamDestroy_v2": (HANDLE,),
    "cuEventCreate": (OUT, c_uint),
    "cuEventRecord": (HANDLE, HANDLE),
    "cuEventSynchronize": (HANDLE,),
    "cuEventElapsedTime": (OUT, HANDLE, HANDLE),
    "cuEventDestroy_v2": (HANDLE,),
}


@dataclass
class FakeGpu:
    name: bytes = b"NVIDIA H100 80GB HBM3"
    uuid: bytes = bytes.fromhex("00112233445566778899aabbccddeeff")
    bus: bytes = b"0000:3B:00.0"
    memory: int = 64 << 20
    attributes: dict[int, int] = field(
        default_factory=lambda: {
            13: 1_980_000,
            16: 2,
            32: 1,
            36: 2_619_000,
            37: 5120,
            38: 52_428_800,
            75: 9,
            76: 0,
            133: 0,
        }
    )
    used: int = 0
    microseconds: int = 0
    """Its clock: every kernel takes a thousand."""


class Refuse(Exception):  # noqa: N818 - reads as a sentence
    def __init__(self, code: int) -> None:
        self.code = code


@dataclass
class _Context:
    gpu: FakeGpu


@dataclass
class _Owned:
    context: _Context


@dataclass
class _Memory(_Owned):
    content: mmap.mmap
    size: int
    on_gpu: bool


@dataclass
class _Stream(_Owned):
    pending: deque[Callable[[], None]] = field(default_factory=deque[Callable[[], None]])


@dataclass
class _Event(_Owned):
    stream: _Stream | None = None
    recorded: int = 0
    happened: int = 0
    at: int = 0


@dataclass(frozen=True)
class _Entry:
    name: str
    parameters: tuple[tuple[str, Any], ...]
    threads: int


@dataclass
class _Module(_Owned):
    entries: dict[str, _Entry]


@dataclass
class _Function(_Owned):
    entry: _Entry


_ENTRY = re.compile(r"\.visible \.entry (\w+)\(\n(.*?)\n\)\n\.reqntid (\d+)", re.DOTALL)
_PARAMETER = re.compile(r"\.param \.(u32|u64) (\w+)")


class FakeCuda:
    """The library. Its functions are attributes, as ctypes has them; `fails[name] = code` breaks one."""

    def __init__(self, gpus: Sequence[FakeGpu], version: int = 12080) -> None:
        self.gpus = list(gpus)
        self.version = version
        self.fails: dict[str, int] = {}
        self.compiler_says = b""
        self.calls: list[str] = []
        self.launched: list[tuple[str, dict[str, int]]] = []
        self.leaks: list[str] = []
        self.wrong: list[BaseException] = []
        """What a real driver might have forgiven."""
        self.objects: dict[int, Any] = {}
        self._next = FIRST_HANDLE
        self._lock = threading.RLock()
        self._current = threading.local()
        for name, types in PROTOTYPES.items():
            body = getattr(self, f"_{name}")
            setattr(self, name, CFUNCTYPE(c_int, *types)(self._entered(name, body)))

    def _entered(self, name: str, body: Callable[..., None]) -> Callable[..., int]:
        def enter(*arguments: Any) -> int:
            with self._lock:
                self.calls.append(name)
                if name in self.fails:
                    return self.fails[name]
                try:
                    body(*arguments)
                except Refuse as refusal:
                    return refusal.code
                except BaseException as error:  # noqa: BLE001 - C has no exceptions
                    self.wrong.append(error)
                    return UNKNOWN
                return 0

        return enter

    def alive(self) -> list[str]:
        """The kinds of all objects that were created and not destroyed."""
        return sorted(type(one).__name__ for one in self.objects.values() if not isinstance(one, _Function))

    # ---- the machine ------------------------------------------------------------------------------------------

    def _cuInit(self, flags: int) -> None:
        _must(flags == 0)

    def _cuGetErrorName(self, code: int, out: int) -> None:
        self._text = ctypes.create_string_buffer(NAMES.get(code, b"CUDA_ERROR_OTHER"))
        c_void_p.from_address(out).value = ctypes.addressof(self._text)

    def _cuDriverGetVersion(self, out: int) -> None:
        c_int.from_address(out).value = self.version

    def _cuDeviceGetCount(self, out: int) -> None:
        c_int.from_address(out).value = len(self.gpus)

    def _cuDeviceGet(self, out: int, ordinal: int) -> None:
        c_int.from_address(out).value = 100 + ordinal  # No ordinal: who mixes them up gets nothing.

    def _gpu(self, device: int) -> FakeGpu:
        if not 100 <= device < 100 + len(self.gpus):
            raise Refuse(101)
        return self.gpus[device - 100]

    def _cuDeviceGetName(self, out: int, size: int, device: int) -> None:
        ctypes.memmove(
            out, (self._gpu(device).name + b"\0")[:size], min(size, len(self._gpu(device).name) + 1)
        )

    def _cuDeviceGetAttribute(self, out: int, attribute: int, device: int) -> None:
        known = self._gpu(device).attributes
        _must(attribute in known)  # As a driver refuses what only a newer cuda.h names.
        c_int.from_address(out).value = known[attribute]

    def _cuDeviceGetUuid_v2(self, out: int, device: int) -> None:
        ctypes.memmove(out, self._gpu(device).uuid, 16)

    def _cuDeviceGetPCIBusId(self, out: int, size: int, device: int) -> None:
        _must(size > len(self._gpu(device).bus))
        ctypes.memmove(out, self._gpu(device).bus + b"\0", len(self._gpu(device).bus) + 1)

    def _cuDeviceTotalMem_v2(self, out: int, device: int) -> None:
        c_size_t.from_address(out).value = self._gpu(device).memory

    # ---- contexts and what lives in them ------------------------------------------------------------------------

    def _made(self, out: int, thing: Any) -> None:
        self._next += 16
        self.objects[self._next] = thing
        c_void_p.from_address(out).value = self._next

    def _context(self) -> _Context:
        current = getattr(self._current, "context", None)
        if current is None:
            raise Refuse(INVALID_CONTEXT)
        return cast("_Context", current)

    def _held(self, handle: int | None, kind: type[T]) -> T:
        """The object of this handle, which must live in the context that is current in this thread."""
        found = self.objects.get(handle or 0)
        if not isinstance(found, kind):
            raise Refuse(INVALID_HANDLE)
        if isinstance(found, _Owned) and found.context is not self._context():
            raise Refuse(INVALID_CONTEXT)
        return found

    def _gone(self, handle: int | None, kind: type[Any]) -> Any:
        found = self._held(handle, kind)
        del self.objects[cast("int", handle)]
        return found

    def _cuCtxCreate_v2(self, out: int, flags: int, device: int) -> None:
        context = _Context(self._gpu(device))
        self._made(out, context)
        self._current.context = context

    def _cuCtxDestroy_v2(self, handle: int) -> None:
        context = self._gone(handle, _Context)
        owned = [key for key, one in self.objects.items() if getattr(one, "context", None) is context]
        for key in owned:
            if not isinstance(self.objects[key], _Function):
                self.leaks.append(type(self.objects[key]).__name__)
            del self.objects[key]
        if getattr(self._current, "context", None) is context:
            self._current.context = None

    def _cuCtxSetCurrent(self, handle: int) -> None:
        self._current.context = self._held(handle, _Context)

    def _cuMemGetInfo_v2(self, free: int, total: int) -> None:
        gpu = self._context().gpu
        c_size_t.from_address(free).value = gpu.memory - gpu.used
        c_size_t.from_address(total).value = gpu.memory

    def _allocated(self, out: int, size: int, *, on_gpu: bool) -> None:
        _must(size > 0)
        memory = _Memory(self._context(), mmap.mmap(-1, size), size, on_gpu)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory.content))
        self.objects[address] = memory
        c_uint64.from_address(out).value = address

    def _cuMemAlloc_v2(self, out: int, size: int) -> None:
        gpu = self._context().gpu
        if gpu.used + size > gpu.memory:
            raise Refuse(OUT_OF_MEMORY)
        self._allocated(out, size, on_gpu=True)
        gpu.used += size

    def _cuMemFree_v2(self, address: int) -> None:
        memory = self._gone(address, _Memory)
        _must(memory.on_gpu)
        self._context().gpu.used -= memory.size

    def _cuMemHostAlloc(self, out: int, size: int, flags: int) -> None:
        _must(flags == 2)
        self._allocated(out, size, on_gpu=False)

    def _cuMemHostGetDevicePointer_v2(self, out: int, host: int, flags: int) -> None:
        _must(flags == 0 and not self._held(host, _Memory).on_gpu)
        c_uint64.from_address(out).value = host

    def _cuMemFreeHost(self, host: int) -> None:
        _must(not self._gone(host, _Memory).on_gpu)

    def _cuModuleLoadDataEx(self, out: int, image: int, count: int, options: int, values: int) -> None:
        numbers = [c_int.from_address(options + 4 * at).value for at in range(count)]
        given = [c_void_p.from_address(values + 8 * at).value or 0 for at in range(count)]
        jit = dict(zip(numbers, given, strict=True))
        if self.compiler_says:
            log = (self.compiler_says + b"\0")[: jit[6]]
            ctypes.memmove(jit[5], log, len(log))
            raise Refuse(218)
        text = ctypes.string_at(image).decode()
        entries = {
            name: _Entry(
                name,
                tuple(
                    (parameter, c_uint32 if width == "u32" else c_uint64)
                    for width, parameter in _PARAMETER.findall(parameters)
                ),
                int(threads),
            )
            for name, parameters, threads in _ENTRY.findall(text)
        }
        self._made(out, _Module(self._context(), entries))

    def _cuModuleUnload(self, handle: int) -> None:
        self._gone(handle, _Module)

    def _cuModuleGetFunction(self, out: int, handle: int, name: int) -> None:
        module = self._held(handle, _Module)
        entry = module.entries.get(ctypes.string_at(name).decode())
        if entry is None:
            raise Refuse(500)
        self._made(out, _Function(module.context, entry))

    # ---- streams and events -------------------------------------------------------------------------------------

    def _cuStreamCreate(self, out: int, flags: int) -> None:
        _must(flags in (0, 1))
        self._made(out, _Stream(self._context()))

    def _cuStreamSynchronize(self, handle: int) -> None:
        stream = self._held(handle, _Stream)
        while stream.pending:
            stream.pending.popleft()()

    def _cuStreamDestroy_v2(self, handle: int) -> None:
        self._gone(handle, _Stream)

    def _cuEventCreate(self, out: int, flags: int) -> None:
        _must(flags == 0)  # Any other event may not tell the time.
        self._made(out, _Event(self._context()))

    def _cuEventRecord(self, handle: int, stream_handle: int) -> None:
        event, stream = self._held(handle, _Event), self._held(stream_handle, _Stream)
        event.recorded += 1
        event.stream = stream
        number = event.recorded

        def happen() -> None:
            event.happened, event.at = number, event.context.gpu.microseconds

        stream.pending.append(happen)

    def _cuEventSynchronize(self, handle: int) -> None:
        event = self._held(handle, _Event)
        while event.happened < event.recorded:
            cast("_Stream", event.stream).pending.popleft()()

    def _cuEventElapsedTime(self, out: int, first: int, last: int) -> None:
        events = [self._held(handle, _Event) for handle in (first, last)]
        if any(event.happened < event.recorded or not event.recorded for event in events):
            raise Refuse(NOT_READY)
        c_float.from_address(out).value = (events[1].at - events[0].at) / 1000

    def _cuEventDestroy_v2(self, handle: int) -> None:
        self._gone(handle, _Event)

    def _cuMemcpyDtoHAsync_v2(self, host: int, device: int, size: int, stream: int) -> None:
        self._within(host, size, on_gpu=False)
        self._within(device, size, on_gpu=True)
        self._held(stream, _Stream).pending.append(lambda: cast("None", ctypes.memmove(host, device, size)))

    # ---- kernels ------------------------------------------------------------------------------------------------

    def _cuLaunchKernel(self, handle: int, *rest: int) -> None:
        entry = self._held(handle, _Function).entry
        *grid_and_block, shared, stream_handle, places, extra = rest
        blocks = grid_and_block[0]
        _must(grid_and_block[1:] == [1, 1, entry.threads, 1, 1] and shared == 0 and not extra)
        values = {
            name: kind.from_address(c_void_p.from_address(places + 8 * at).value).value
            for at, (name, kind) in enumerate(entry.parameters)
        }
        self.launched.append((entry.name, values))
        stream = self._held(stream_handle, _Stream)
        gpu = stream.context.gpu

        def run() -> None:
            gpu.microseconds += 1000
            getattr(self, f"_run_{entry.name}")(values, blocks, entry.threads)

        stream.pending.append(run)

    def _within(self, address: int, size: int, *, on_gpu: bool | None = None) -> None:
        for start, one in self.objects.items():
            if isinstance(one, _Memory) and start <= address and address + size <= start + one.size:
                if one.context is not self._context() or on_gpu not in (None, one.on_gpu):
                    break
                return
        raise AssertionError(f"{size} bytes at {address:#x} are not there")

    def _wrote(self, address: int, content: bytes) -> None:
        self._within(address, len(content))
        ctypes.memmove(address, content, len(content))

    def _run_fill(self, given: dict[str, int], blocks: int, threads: int) -> None:
        first, count = given["first"], given["count"]
        _must(blocks == -(-count // threads))
        numbers = np.arange(first // 8, -(-(first + count) // 8), dtype=np.uint64)
        content = fill.blocks(_bytes(given, "seed", 8), given["iterations"], numbers).tobytes()
        skipped = first % 8 * 64
        self._wrote(given["memory"] + 64 * first, content[skipped : skipped + 64 * count])

    def _run_walk(self, given: dict[str, int], blocks: int, threads: int) -> None:
        first, count, size = given["first"], given["count"], given["blocks"] * BLOCK_BYTES
        _must(blocks == -(-count // (threads // 32 * 2)))
        self._within(given["memory"], size, on_gpu=True)
        words = np.frombuffer(ctypes.string_at(given["memory"], size), "<u4").reshape(-1, BLOCK_BYTES // 4)
        chains = np.arange(first, first + count, dtype=np.uint32)
        nonce = _bytes(given, "nonce", 4)
        self._wrote(
            given["digests"], walk.digests(nonce, chains, given["steps"], given["blocks"], words.__getitem__)
        )

    def _run_tiles(self, kind: TileKind, given: dict[str, int], blocks: int, threads: int) -> None:
        first, count = given["first"], given["count"]
        _must(blocks == -(-count // (threads // 32)))
        numbers = np.arange(first, first + count, dtype=np.uint32)
        seed = _bytes(given, "seed", 4)
        found = tiles.digests(kind, seed, given["inner"], given["columns"], numbers)
        _must(len(found) == count * DIGEST_BYTES)
        self._wrote(given["digests"], found)

    def _run_tiles_int8(self, given: dict[str, int], blocks: int, threads: int) -> None:
        self._run_tiles("int8", given, blocks, threads)

    def _run_tiles_bf16(self, given: dict[str, int], blocks: int, threads: int) -> None:
        self._run_tiles("bf16", given, blocks, threads)

    def _run_echo(self, given: dict[str, int], blocks: int, threads: int) -> None:
        _must(blocks == threads == 1)
        self._wrote(given["answer"], launches.launch(_bytes(given, "message", 4)))

    def _run_gaps(self, given: dict[str, int], blocks: int, threads: int) -> None:
        _must(threads == 1)
        for block in range(blocks):
            samples = given["duration"] // 1000
            row = pack("<4I", blocks - 1 - block, samples, block, given["threshold"] // 1000)
            self._wrote(given["found"] + 16 * block, row)


def _bytes(given: dict[str, int], name: str, words: int) -> bytes:
    return b"".join(given[f"{name}{at}"].to_bytes(4, "little") for at in range(words))


def _must(truth: bool) -> None:
    if not truth:
        raise Refuse(INVALID_VALUE)
