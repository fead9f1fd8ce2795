"""What sources other than CUDA say about a card: NVML, and the kernel in sysfs and /proc.

All of these are claims, and on a hostile machine each may be a lie. But they must agree with each other, and most fakes
get one of them wrong. A claim is None if its source does not say; nothing here raises.
"""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from data_plane.nvml import identity
from data_plane.nvml import library as nvml
from data_plane.nvml.library import Library

_PCI_NUMBER = re.compile(r"0x([0-9a-f]{4})\n?")
_MODEL = re.compile(r"^Model:[ \t]+([\x20-\x7e]{1,96}?)[ \t]*$", re.MULTILINE)
_DRIVER = re.compile(r"Kernel Module[^\n]*?[ \t]([0-9]{3}\.[0-9.]{2,20})[ \t\n]")
_FILE_BYTES_MAX = 4096


class Claims:
    """The sources, which stay open as long as the prover runs."""

    def __init__(self, root: Path = Path("/"), api: Any = nvml.BINDINGS) -> None:
        """`root` is the folder of sysfs and /proc, `api` the bindings of NVML."""
        self._root = root
        self._stack = ExitStack()
        self._nvml: Library | None = None
        try:
            self._nvml = self._stack.enter_context(nvml.opened(api))
        except (nvml.NoLibrary, nvml.Unanswered):
            return

    def driver(self) -> str:
        """The driver's version, such as `570.124.06`; `unknown` if no source says."""
        found = _DRIVER.search(self._text("proc/driver/nvidia/version"))
        if found is not None:
            return found[1]
        version = None if self._nvml is None else self._nvml.ask("nvmlSystemGetDriverVersion")
        return "unknown" if version is None else str(version)

    def of(self, pci_bus: str) -> "dict[str, Any]":
        """The fields of messages.GpuIdentity from NVML, sysfs and /proc, for the card at this PCI address."""
        device = f"sys/bus/pci/devices/{pci_bus}"
        model = _MODEL.search(self._text(f"proc/driver/nvidia/gpus/{pci_bus}/information"))
        return {
            **self._by_nvml(pci_bus),
            "sysfs_pci_device": self._pair(f"{device}/vendor", f"{device}/device"),
            "sysfs_pci_subsystem": self._pair(f"{device}/subsystem_vendor", f"{device}/subsystem_device"),
            "proc_model": None if model is None else model[1],
        }

    def throttle(self, pci_bus: str) -> "int | None":
        """NVML's current clocks-event reason bits."""
        card = self._card(pci_bus)
        if self._nvml is None or card is None:
            return None
        try:
            return _reasons(self._nvml, card)
        except nvml.Lost:
            return None

    def close(self) -> None:
        self._stack.close()

    def _by_nvml(self, pci_bus: str) -> "dict[str, Any]":
        claims: dict[str, Any] = dict.fromkeys(
            (
                "nvml_name",
                "nvml_uuid",
                "nvml_memory",
                "nvml_pci_device",
                "nvml_pci_bus",
                "nvml_ecc",
                "nvml_throttle",
                "nvml_processes",
            )
        )
        claims["nvml_sharing"] = "unknown"
        library, card = self._nvml, self._card(pci_bus)
        if library is None or card is None:
            return claims
        try:
            who = identity.read(library, card)
            ecc = library.ask("nvmlDeviceGetEccMode", card)
            memory = library.ask("nvmlDeviceGetMemoryInfo", card)
            return {
                "nvml_name": who["name"],
                "nvml_uuid": who["uuid"],
                "nvml_memory": None if memory is None else int(memory.total),
                "nvml_pci_device": who["pci_device_id"],
                "nvml_pci_bus": who["bus_id"],
                "nvml_sharing": who["sharing"],
                "nvml_ecc": None if ecc is None else bool(ecc[0]),
                "nvml_throttle": _reasons(library, card),
                "nvml_processes": nvml.processes(library, card, "Compute"),
            }
        except (nvml.Lost, nvml.Unanswered):
            return claims

    def _card(self, pci_bus: str) -> Any:
        if self._nvml is None:
            return None
        try:
            return self._nvml.ask("nvmlDeviceGetHandleByPciBusId", pci_bus)
        except nvml.Lost:
            return None

    def _text(self, path: str) -> str:
        try:
            with (self._root / path).open("rb") as file:
                return file.read(_FILE_BYTES_MAX).decode("ascii", "replace")
        except OSError:
            return ""

    def _pair(self, vendor: str, device: str) -> "str | None":
        found = [_PCI_NUMBER.fullmatch(self._text(path)) for path in (vendor, device)]
        return None if None in found else ":".join(one[1] for one in found if one is not None)


def _reasons(library: Library, card: object) -> "int | None":
    reasons = library.ask("nvmlDeviceGetCurrentClocksEventReasons", card)
    if reasons is None:  # Its name before R535.
        reasons = library.ask("nvmlDeviceGetCurrentClocksThrottleReasons", card)
    return None if reasons is None else int(reasons)
