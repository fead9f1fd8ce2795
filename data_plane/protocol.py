"""What the agent prints and how we read it: one JSON document, one version, both sides from this file.

The agent travels with its own copy, pushed by digest, so both sides always speak the same version: the
parser is exact (these keys, these types, nothing more) instead of tolerant. Whoever prints the document
is a hostile node until proven otherwise, so everything is bounded before it is looked at.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, NoReturn, cast

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


class Malformed(Exception):  # noqa: N818 - reads as a sentence: the answer is malformed
    """The bytes are not a document of this protocol. The text names the field, never quotes the bytes."""


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
    """Read what a machine printed. Raises Malformed, and nothing else, whatever the bytes are."""
    document = _load(content)
    kind = document.get("kind")
    if kind == "inventory":
        _keys(document, {"protocol", "kind", "source", "driver_version", "gpus"})
        _version(document)
        return Inventory(
            source=cast("Source", _one_of(document, "source", ("nvml", "emulated"))),
            driver_version=_text(document, "driver_version", _DRIVER),
            gpus=_gpus(document["gpus"]),
        )
    if kind == "failure":
        _keys(document, {"protocol", "kind", "code", "detail"})
        _version(document)
        return Failure(code=_text(document, "code", _CODE), detail=_text(document, "detail", _DETAIL))
    raise Malformed("kind is unknown")


def printable(text: str, limit: int = 300) -> str:
    """Text that may stand in a Failure: one line of printable ASCII, at most `limit` characters."""
    return "".join(c if " " <= c <= "~" else " " for c in text)[:limit]


def _load(content: bytes) -> "dict[str, Any]":
    if len(content) > DOCUMENT_BYTES_MAX:
        raise Malformed(f"longer than {DOCUMENT_BYTES_MAX} bytes")
    try:
        document = json.loads(
            content.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_no_float,
            object_pairs_hook=_once,
        )
    except (ValueError, RecursionError):  # RecursionError: a document of nothing but brackets.
        raise Malformed("not JSON") from None
    if not isinstance(document, dict):
        raise Malformed("not an object")
    return cast("dict[str, Any]", document)


def _no_constant(_: str) -> NoReturn:
    raise Malformed("NaN and Infinity are not numbers here")


def _no_float(_: str) -> NoReturn:
    raise Malformed("a number is not whole")


def _once(pairs: "list[tuple[str, Any]]") -> "dict[str, Any]":
    document = dict(pairs)
    if len(document) != len(pairs):
        raise Malformed("a key appears twice")  # Two readers could see two different machines.
    return document


def _gpus(raw: object) -> "tuple[Gpu, ...]":
    if not isinstance(raw, list):
        raise Malformed("gpus is not a list")
    if len(raw) > GPUS_MAX:
        raise Malformed(f"more than {GPUS_MAX} GPUs")
    gpus = tuple(_gpu(one) for one in raw)
    if [gpu.index for gpu in gpus] != list(range(len(gpus))):
        raise Malformed("GPU indices are not 0, 1, 2, ...")
    if len({gpu.uuid for gpu in gpus}) != len(gpus):
        raise Malformed("two GPUs share a UUID")
    return gpus


def _gpu(raw: object) -> Gpu:
    if not isinstance(raw, dict):
        raise Malformed("a GPU is not an object")
    gpu = cast("dict[str, Any]", raw)
    _keys(gpu, set(Gpu.__dataclass_fields__))
    return Gpu(
        index=_whole(gpu, "index", 0, GPUS_MAX - 1),
        name=_text(gpu, "name", _NAME),
        uuid=_text(gpu, "uuid", _UUID),
        memory_total_mib=_whole(gpu, "memory_total_mib", 1, MEMORY_MIB_MAX),
        sharing=cast("Sharing", _one_of(gpu, "sharing", ("none", "mig", "vgpu", "unknown"))),
        pci_device_id=None if gpu["pci_device_id"] is None else _text(gpu, "pci_device_id", _PCI_DEVICE),
        compute_capability=(
            None if gpu["compute_capability"] is None else _text(gpu, "compute_capability", _CAPABILITY)
        ),
    )


def _version(document: "dict[str, Any]") -> None:
    if _whole(document, "protocol", 0, 1_000_000) != VERSION:
        raise Malformed(f"protocol is not {VERSION}")


def _keys(document: "dict[str, Any]", expected: "set[str]") -> None:
    if document.keys() != expected:
        raise Malformed("keys are not those of this message")


def _whole(document: "dict[str, Any]", key: str, least: int, most: int) -> int:
    value = document[key]
    if type(value) is not int or not least <= value <= most:  # type(): True is an int to isinstance.
        raise Malformed(f"{key} is not a whole number from {least} to {most}")
    return value


def _text(document: "dict[str, Any]", key: str, pattern: "re.Pattern[str]") -> str:
    value = document[key]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Malformed(f"{key} is not acceptable text")
    return value


def _one_of(document: "dict[str, Any]", key: str, words: "tuple[str, ...]") -> str:
    value = document[key]
    if not isinstance(value, str) or value not in words:
        raise Malformed(f"{key} is not one of {', '.join(words)}")
    return value
