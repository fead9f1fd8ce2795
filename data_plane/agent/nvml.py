"""The only owner of NVML. Importing this needs no GPU and no driver; reading does.

The bindings load `libnvidia-ml.so.1` lazily, so the import is safe anywhere. Identity only: every call
here answers in microseconds and none wakes or changes a card.
"""

import pynvml

from data_plane.inventory import Gpu, Inventory, Sharing
from data_plane.protocol import Failure
from data_plane.strict import printable


class NoLibrary(Exception):  # noqa: N818 - reads as a sentence
    """There is no NVIDIA management library on this machine at all."""


def read() -> "Inventory | Failure":
    """Every GPU the driver shows. Raises NoLibrary only if the library cannot be loaded.

    A library without a working driver is a Failure, never NoLibrary: such a machine has, or claims to
    have, real cards, and nothing emulated may stand in for them.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise NoLibrary from None
    except pynvml.NVMLError as error:
        return _failure("nvmlInit", error)
    try:
        gpus = tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
        return Inventory(
            source="nvml",
            driver_version=str(pynvml.nvmlSystemGetDriverVersion()),
            gpus=gpus,
            ancestors=tuple((None,) * len(gpus) for _ in gpus),
        )
    except pynvml.NVMLError as error:
        return _failure("reading GPUs", error)  # A card that fell off the bus: part of a list is no list.
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=index,
        name=str(pynvml.nvmlDeviceGetName(handle)),
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        memory_total_mib=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20,
        sharing=_sharing(handle),
        pci_device_id=_pci_device_id(handle),
        compute_capability=_compute_capability(handle),
    )


def _sharing(handle: object) -> Sharing:
    """Whether the card looks whole. Passthrough counts as whole: that is how clouds hand over a card."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError_NotSupported:
        current = pynvml.NVML_DEVICE_MIG_DISABLE  # Consumer cards and everything before Ampere.
    except pynvml.NVMLError:
        return "unknown"
    if current == pynvml.NVML_DEVICE_MIG_ENABLE:
        return "mig"
    try:
        mode = pynvml.nvmlDeviceGetVirtualizationMode(handle)
    except pynvml.NVMLError_NotSupported:
        return "none"
    except pynvml.NVMLError:
        return "unknown"
    # Bindings differ over versions in the width they return; the high bits are not part of the mode.
    return "vgpu" if mode & 0xFF == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU else "none"


def _pci_device_id(handle: object) -> "str | None":
    try:
        combined = int(pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId)
    except pynvml.NVMLError:
        return None
    return f"{combined & 0xFFFF:04x}:{combined >> 16 & 0xFFFF:04x}"  # The vendor sits in the low half.


def _compute_capability(handle: object) -> "str | None":
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError:
        return None
    return f"{major}.{minor}"


def _failure(doing: str, error: pynvml.NVMLError) -> Failure:
    return Failure("nvml_error", printable(f"{doing}: {error}"))
