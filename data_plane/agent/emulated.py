"""The honest emulation: a machine without NVIDIA's library answers from a file, and says so.

The file describes the cards that a test or demo machine pretends to have:

    {"driver_version": "570.0", "gpus": [
        {"index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-...", "memory_total_mib": 81559}]}

`sharing`, `pci_device_id` and `compute_capability` may be added. There is no way to say `source`: this
module writes `emulated` itself, so a file cannot pass itself off as NVML.
"""

import json
from pathlib import Path

from data_plane.inventory import Gpu, Inventory
from data_plane.protocol import DOCUMENT_BYTES_MAX, Failure
from data_plane.records import fitting
from data_plane.strict import Malformed, printable

PATH = Path("/etc/emulated-nvml.json")

_OPTIONAL = {"sharing": "none", "pci_device_id": None, "compute_capability": None}


def read(path: Path) -> "Inventory | Failure | None":
    """What the file says, marked `emulated`; None if there is no file; Failure if it is not well-formed."""
    try:
        with path.open("rb") as file:
            content = file.read(DOCUMENT_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Failure("bad_emulation", printable(f"{path}: {error.strerror}"))
    try:
        return _inventory(content)
    except (Malformed, ValueError, KeyError, TypeError, RecursionError) as error:
        return Failure("bad_emulation", printable(f"{path}: {type(error).__name__}: {error}"))


def _inventory(content: bytes) -> Inventory:
    written = json.loads(content)
    gpus = tuple(fitting(Gpu, **{**_OPTIONAL, **gpu}) for gpu in written["gpus"])
    return fitting(
        Inventory,
        source="emulated",
        driver_version=written["driver_version"],
        gpus=gpus,
        ancestors=tuple((None,) * len(gpus) for _ in gpus),
    )
