"""What the agent prints and how we read it: one JSON document, one version, both sides from this file.

The agent travels with its own copy, pushed by digest, so both sides always speak the same version: the
parser is exact (these keys, these types, nothing more) instead of tolerant. Whoever prints the document
is a hostile node until proven otherwise, so everything is bounded before it is looked at.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from data_plane import strict

VERSION = 1

DOCUMENT_BYTES_MAX = 64 * 1024
GPUS_MAX = 64
"""The largest machines on sale hold 16 cards."""
MEMORY_MIB_MAX = 16 * 1024 * 1024
"""16 TiB, far above any card; keeps a claim inside every integer type it may meet."""

Source = Literal["nvml", "emulated"]
Sharing = Literal["none", "mig", "vgpu", "unknown"]

_NAME = re.compile(r"[\x20-\x7e]{1,96}")  # NVML's buffer is 96 bytes (NVML_DEVICE_NAME_V2_BUFFER_SIZE).
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,76}")
_DRIVER = re.compile(r"[0-9A-Za-z._+-]{1,80}")
_PCI_DEVICE = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}")
_CODE = re.compile(r"[a-z_]{1,40}")
_DETAIL = re.compile(r"[\x20-\x7e]{0,300}")


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    uuid: str
    memory_total_mib: int
    """NVML's total in MiB, rounded down."""
    sharing: Sharing
    pci_device_id: "str | None"
    """`10de:2330`: vendor and device, lower-case hex."""
    compute_capability: "str | None"
    """`9.0`."""


@dataclass(frozen=True)
class Inventory:
    """Every GPU of the machine, by index."""

    source: Source
    driver_version: str
    gpus: "tuple[Gpu, ...]"


@dataclass(frozen=True)
class Failure:
    """The agent ran and could not answer."""

    code: str
    """`no_gpu_library`, `nvml_error`, `bad_emulation`."""
    detail: str


def encode(message: "Inventory | Failure") -> str:
    """The one line the agent prints."""
    kind = "inventory" if isinstance(message, Inventory) else "failure"
    return json.dumps({"protocol": VERSION, "kind": kind, **asdict(message)}, sort_keys=True)


def decode(content: bytes) -> "Inventory | Failure":
    """Read what a machine printed. Raises strict.Malformed, and nothing else, whatever the bytes are."""
    document = strict.load(content, DOCUMENT_BYTES_MAX)
    kind = document.get("kind")
    if kind == "inventory":
        strict.keys(document, {"protocol", "kind", "source", "driver_version", "gpus"})
        _version(document)
        return Inventory(
            source=cast("Source", strict.one_of(document, "source", ("nvml", "emulated"))),
            driver_version=strict.text(document, "driver_version", _DRIVER),
            gpus=_gpus(document),
        )
    if kind == "failure":
        strict.keys(document, {"protocol", "kind", "code", "detail"})
        _version(document)
        return Failure(
            code=strict.text(document, "code", _CODE), detail=strict.text(document, "detail", _DETAIL)
        )
    raise strict.Malformed("kind is unknown")


def _gpus(document: "dict[str, Any]") -> "tuple[Gpu, ...]":
    gpus = tuple(_gpu(strict.mapping(one, "a GPU")) for one in strict.listing(document, "gpus", GPUS_MAX))
    if [gpu.index for gpu in gpus] != list(range(len(gpus))):
        raise strict.Malformed("GPU indices are not 0, 1, 2, ...")
    if len({gpu.uuid for gpu in gpus}) != len(gpus):
        raise strict.Malformed("two GPUs share a UUID")
    return gpus


def _gpu(gpu: "dict[str, Any]") -> Gpu:
    strict.keys(gpu, set(Gpu.__dataclass_fields__))
    return Gpu(
        index=strict.whole(gpu, "index", 0, GPUS_MAX - 1),
        name=strict.text(gpu, "name", _NAME),
        uuid=strict.text(gpu, "uuid", _UUID),
        memory_total_mib=strict.whole(gpu, "memory_total_mib", 1, MEMORY_MIB_MAX),
        sharing=cast("Sharing", strict.one_of(gpu, "sharing", ("none", "mig", "vgpu", "unknown"))),
        pci_device_id=None
        if gpu["pci_device_id"] is None
        else strict.text(gpu, "pci_device_id", _PCI_DEVICE),
        compute_capability=(
            None if gpu["compute_capability"] is None else strict.text(gpu, "compute_capability", _CAPABILITY)
        ),
    )


def _version(document: "dict[str, Any]") -> None:
    if strict.whole(document, "protocol", 0, 1_000_000) != VERSION:
        raise strict.Malformed(f"protocol is not {VERSION}")
