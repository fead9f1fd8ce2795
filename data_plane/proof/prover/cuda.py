"""The part of the CUDA driver API that the prover calls: symbols, types, errors.

It needs only the driver, `libcuda.so.1`, and no toolkit. Symbols are bound by the exact names that the library exports.
They differ from the documentation: cuda.h maps a name such as `cuCtxCreate` to a version that depends on the header.
All argument types are declared, because ctypes would otherwise truncate pointers to ints.

Source: cuda.h of CUDA 12.9 and 13.5.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from data_plane.documents.strict import printable
from data_plane.proof.prover import cuda_errors
from data_plane.proof.prover.device import DeviceError

SONAME = "libcuda.so.1"

ATTRIBUTE_SM_KHZ = 13
ATTRIBUTE_SMS = 16
ATTRIBUTE_ECC = 32
ATTRIBUTE_MEMORY_KHZ = 36
ATTRIBUTE_BUS_BITS = 37
ATTRIBUTE_L2_BYTES = 38
ATTRIBUTE_CAPABILITY_MAJOR = 75
ATTRIBUTE_CAPABILITY_MINOR = 76
ATTRIBUTE_MPS = 133
"""Exists since CUDA 12.3 (driver 545). All other attributes are older than any driver that we can use."""

_JIT_ERROR_LOG = 5
_JIT_ERROR_LOG_BYTES = 6
_LOG_BYTES = 4096

_DEVICE = c_int
_POINTER = c_uint64
"""CUdeviceptr: an address in a GPU's memory."""
_HANDLE = c_void_p
"""CUcontext, CUmodule, CUfunction, CUstream, CUevent."""

SYMBOLS: "dict[str, tuple[Any, ...]]" = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(_DEVICE), c_int),
    "cuDeviceGetName": (c_char_p, c_int, _DEVICE),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, _DEVICE),
    "cuDeviceGetUuid_v2": (c_char_p, _DEVICE),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, _DEVICE),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), _DEVICE),
    "cuCtxCreate_v2": (POINTER(_HANDLE), c_uint, _DEVICE),
    "cuCtxDestroy_v2": (_HANDLE,),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(_POINTER), c_size_t),
    "cuMemFree_v2": (_POINTER,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemHostGetDevicePointer_v2": (POINTER(_POINTER), c_void_p, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _POINTER, c_size_t, _HANDLE),
    "cuModuleLoadDataEx": (POINTER(_HANDLE), c_char_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    "cuModuleUnload": (_HANDLE,),
    "cuModuleGetFunction": (POINTER(_HANDLE), _HANDLE, c_char_p),
    "cuLaunchKernel": (
        _HANDLE,
        *(c_uint,) * 3,  # The grid,
        *(c_uint,) * 3,  # a block,
        c_uint,  # bytes of shared memory,
        _HANDLE,  # the stream,
        POINTER(c_void_p),  # pointers to the parameters,
        POINTER(c_void_p),  # and another way to pass them, which is not used.
    ),
    "cuStreamCreate": (POINTER(_HANDLE), c_uint),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuEventCreate": (POINTER(_HANDLE), c_uint),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventElapsedTime": (POINTER(c_float), _HANDLE, _HANDLE),
    "cuEventDestroy_v2": (_HANDLE,),
}
"""The argument types of each symbol. All of them return a CUresult."""


def library() -> Any:
    """libcuda, found by the usual search path; None on a machine without it.

    Raises DeviceError `no_driver` if the library is there and cannot be loaded.
    """
    try:
        return ctypes.CDLL(SONAME)
    except OSError as error:
        if str(error).startswith(f"{SONAME}: cannot open shared object file: No such file"):
            return None
        raise DeviceError("no_driver", f"{SONAME} cannot be loaded: {error}") from None


class Driver:
    """The bound functions. Calling one raises DeviceError unless it succeeds."""

    def __init__(self, library: Any) -> None:
        """Raises DeviceError `no_driver` if the library lacks one of the symbols."""
        self._error_name = self._bind(library, "cuGetErrorName", (c_int, POINTER(c_char_p)))
        for symbol, types in SYMBOLS.items():
            function = self._bind(library, symbol, types)
            function.errcheck = self._checked
            setattr(self, symbol, function)

    def __getattr__(self, symbol: str) -> Any:
        """Tells the type checker that every symbol is an attribute."""
        raise AttributeError(symbol)

    @staticmethod
    def _bind(library: Any, symbol: str, types: "tuple[Any, ...]") -> Any:
        try:
            function = getattr(library, symbol)
        except AttributeError:
            raise DeviceError(
                "no_driver", f"{SONAME} has no {symbol}: it is too old, or not NVIDIA's"
            ) from None
        function.argtypes = types
        function.restype = c_int
        function.symbol = symbol
        return function

    def _checked(self, code: int, function: Any, _: Any) -> None:
        if code:
            name = c_char_p()
            self._error_name(code, byref(name))
            raise cuda_errors.named(function.symbol, code, (name.value or b"").decode("ascii", "replace"))

    # ---- reading values --------------------------------------------------------------------------------------

    def version(self) -> str:
        """The newest CUDA version that this driver supports, such as `12.8`."""
        value = c_int()
        self.cuDriverGetVersion(byref(value))
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    def devices(self) -> "list[int]":
        count, device, found = c_int(), _DEVICE(), list[int]()
        self.cuDeviceGetCount(byref(count))
        for ordinal in range(count.value):
            self.cuDeviceGet(byref(device), ordinal)
            found.append(device.value)
        return found

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(97)
        self.cuDeviceGetName(text, len(text), device)
        return printable(text.value.decode("ascii", "replace"))

    def uuid(self, device: int) -> str:
        raw = ctypes.create_string_buffer(16)
        self.cuDeviceGetUuid_v2(raw, device)
        digits = raw.raw.hex()
        return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def pci_bus(self, device: int) -> str:
        """The PCI address as sysfs writes it, such as `0000:3b:00.0`."""
        text = ctypes.create_string_buffer(32)
        self.cuDeviceGetPCIBusId(text, len(text), device)
        return text.value.decode("ascii", "replace").lower()

    def attribute(self, attribute: int, device: int, *, unknown: "int | None" = None) -> int:
        """An attribute of the device. A driver that is older than the attribute answers `unknown`, if that is given.

        Raises DeviceError.
        """
        value = c_int()
        try:
            self.cuDeviceGetAttribute(byref(value), attribute, device)
        except cuda_errors.CudaError as error:
            if unknown is None or error.number != cuda_errors.INVALID_VALUE:
                raise
            return unknown
        return value.value

    def memory(self, device: int) -> int:
        """The device's memory in bytes."""
        value = c_size_t()
        self.cuDeviceTotalMem_v2(byref(value), device)
        return value.value

    # ---- making objects --------------------------------------------------------------------------------------

    def compiled(self, text: bytes) -> c_void_p:
        """A module of PTX, compiled for the device of the current context. Errors contain the compiler's messages."""
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        module = _HANDLE()
        try:
            self.cuModuleLoadDataEx(byref(module), text, len(options), options, values)
        except DeviceError as error:
            messages = printable(log.value.decode("ascii", "replace"))
            raise DeviceError(
                error.code, f"{error.detail}. {messages}" if messages else error.detail
            ) from None
        return module

    def function(self, module: c_void_p, name: str) -> c_void_p:
        function = _HANDLE()
        self.cuModuleGetFunction(byref(function), module, name.encode())
        return function

    def stream(self) -> c_void_p:
        stream = _HANDLE()
        self.cuStreamCreate(byref(stream), 1)  # CU_STREAM_NON_BLOCKING: does not wait for other streams.
        return stream

    def event(self) -> c_void_p:
        event = _HANDLE()
        self.cuEventCreate(byref(event), 0)
        return event

    def allocated(self, size: int) -> int:
        """The address of `size` allocated bytes on the device of the current context."""
        address = _POINTER()
        self.cuMemAlloc_v2(byref(address), size)
        return address.value

    def pinned(self, size: int) -> c_void_p:
        """`size` bytes of host memory that the device can write to."""
        address = c_void_p()
        self.cuMemHostAlloc(byref(address), size, 2)  # CU_MEMHOSTALLOC_DEVICEMAP.
        return address

    def mapped(self, host: c_void_p) -> int:
        """The device's address of pinned host memory."""
        address = _POINTER()
        self.cuMemHostGetDevicePointer_v2(byref(address), host, 0)
        return address.value

    def free(self) -> int:
        """Free bytes on the device of the current context."""
        free, total = c_size_t(), c_size_t()
        self.cuMemGetInfo_v2(byref(free), byref(total))
        return free.value

    def elapsed_us(self, first: c_void_p, last: c_void_p) -> int:
        """Microseconds between two past events."""
        milliseconds = c_float()
        self.cuEventElapsedTime(byref(milliseconds), first, last)
        return round(milliseconds.value * 1000)
