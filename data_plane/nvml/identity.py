"""Reads a card's identity: name, serial number, board, firmware, limits."""

from collections.abc import Mapping

from data_plane.documents.inventory import Sharing
from data_plane.nvml.library import BINDINGS, Library, bus_id

_VIRTUALIZATION = ("none", "passthrough", "vgpu", "vgpu_host", "vsga_host")
"""Our words for NVML_GPU_VIRTUALIZATION_MODE_*, by number."""


def read(library: Library, handle: object) -> "Mapping[str, object]":
    """Values of `inventory.Gpu`, by field. Raises Lost, and Unanswered if the name, UUID or memory cannot be read."""
    pci = library.ask("nvmlDeviceGetPciInfo", handle)
    memory = library.ask("nvmlDeviceGetMemoryInfo", handle, BINDINGS.nvmlMemory_v2)
    capability = library.ask("nvmlDeviceGetCudaComputeCapability", handle)
    limits = library.ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)
    return {
        "name": str(library.must("nvmlDeviceGetName", handle)),
        "uuid": str(library.must("nvmlDeviceGetUUID", handle)),
        "memory_total_mib": int(library.must("nvmlDeviceGetMemoryInfo", handle).total) >> 20,
        "memory_reserved_mib": None if memory is None else int(memory.reserved) >> 20,
        "sharing": _sharing(library, handle),
        "pci_device_id": None if pci is None else _pci_id(pci.pciDeviceId),
        "pci_subsystem_id": None if pci is None else _pci_id(pci.pciSubSystemId),
        "bus_id": bus_id(library, handle),
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "serial": library.ask("nvmlDeviceGetSerial", handle),
        "board_part_number": library.ask("nvmlDeviceGetBoardPartNumber", handle),
        "vbios": library.ask("nvmlDeviceGetVbiosVersion", handle),
        "inforom": library.ask("nvmlDeviceGetInforomImageVersion", handle),
        "gsp_firmware": library.ask("nvmlDeviceGetGspFirmwareVersion", handle),
        "brand": library.ask("nvmlDeviceGetBrand", handle),
        "virtualization": _virtualization(library, handle),
        "cores": library.ask("nvmlDeviceGetNumGpuCores", handle),
        "bus_width_bits": library.ask("nvmlDeviceGetMemoryBusWidth", handle),
        "power_limit_mw": library.ask("nvmlDeviceGetEnforcedPowerLimit", handle),
        "power_limit_min_mw": None if limits is None else limits[0],
        "power_limit_max_mw": None if limits is None else limits[1],
        "sm_max_mhz": library.ask("nvmlDeviceGetMaxClockInfo", handle, BINDINGS.NVML_CLOCK_SM),
        "memory_max_mhz": library.ask("nvmlDeviceGetMaxClockInfo", handle, BINDINGS.NVML_CLOCK_MEM),
    }


def _sharing(library: Library, handle: object) -> Sharing:
    """Whether the card seems to be whole. Passthrough counts as whole, since that is how clouds rent out cards."""
    # Consumer cards and all cards before Ampere do not report MIG mode, which is no error.
    mode = library.ask("nvmlDeviceGetMigMode", handle, refused="unknown")
    if mode == "unknown":
        return "unknown"
    if mode is not None and mode[0] == BINDINGS.NVML_DEVICE_MIG_ENABLE:
        return "mig"
    guest = library.ask("nvmlDeviceGetVirtualizationMode", handle, refused="unknown")
    if guest == "unknown":
        return "unknown"
    return "vgpu" if guest is not None and _mode(guest) == "vgpu" else "none"


def _virtualization(library: Library, handle: object) -> "str | None":
    guest = library.ask("nvmlDeviceGetVirtualizationMode", handle)
    return None if guest is None else _mode(guest)


def _mode(guest: int) -> "str | None":
    # Versions of the bindings return different widths; the high bits are not part of the mode.
    number = guest & 0xFF
    return _VIRTUALIZATION[number] if number < len(_VIRTUALIZATION) else None


def _pci_id(combined: int) -> str:
    return f"{combined & 0xFFFF:04x}:{combined >> 16 & 0xFFFF:04x}"  # The vendor is in the low half.
