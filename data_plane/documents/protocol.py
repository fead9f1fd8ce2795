"""The agent's output: one JSON document, written and read by this file on both sides.

The agent contains its own copy of this file and is pushed by digest, so both sides always have the same version.
Therefore the parser is exact (these keys, these types, nothing more) and not tolerant. The node that prints the
document is hostile until proven otherwise, so every size is checked before the content is parsed.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

from data_plane.documents import records, strict
from data_plane.documents.health import Health
from data_plane.documents.inventory import Inventory
from data_plane.documents.records import Text

VERSION = 2

DOCUMENT_BYTES_MAX = 256 * 1024
"""Eight cards with MIG and 18 links each, with the hardware around them, take about 60 KB; 16 cards take twice that."""


@dataclass(frozen=True)
class Failure:
    """Why the agent could not answer."""

    code: Annotated[str, Text("[a-z_]{1,40}")]
    """`no_gpu_library`, `nvml_error`, `gpu_lost`, `nvml_hangs`, `bad_reading`, `bad_emulation`."""
    detail: Annotated[str, Text(r"[\x20-\x7e]{0,300}")]


Message = Inventory | Health | Failure
_KINDS: "dict[str, type[Message]]" = {
    "inventory": Inventory,
    "health": Health,
    "failure": Failure,
}


def encode(message: Message) -> str:
    """The line that the agent prints."""
    kind = next(kind for kind, its in _KINDS.items() if isinstance(message, its))
    return json.dumps({"protocol": VERSION, "kind": kind, **asdict(message)}, sort_keys=True)


def decode(content: bytes) -> Message:
    """The document that a machine printed. Raises strict.Malformed, and nothing else, whatever the bytes are."""
    document = strict.load(content, DOCUMENT_BYTES_MAX)
    kind = document.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise strict.Malformed("kind is unknown")
    if type(version := document.pop("protocol", None)) is not int or version != VERSION:
        raise strict.Malformed(f"protocol is not {VERSION}")
    message = records.read(_KINDS[kind], document, "document")
    if isinstance(message, Inventory | Health):
        _in_order([gpu.index for gpu in message.gpus])
        _no_twins([gpu.uuid for gpu in message.gpus if gpu.uuid is not None])
    if isinstance(message, Inventory):
        _square(message)
    return message


def _in_order(indices: "list[int]") -> None:
    if indices != list(range(len(indices))):
        raise strict.Malformed("GPU indices are not 0, 1, 2, ...")


def _no_twins(uuids: "list[str]") -> None:
    if len(set(uuids)) != len(uuids):
        raise strict.Malformed("two GPUs share a UUID")


def _square(inventory: Inventory) -> None:
    count = len(inventory.gpus)
    if len(inventory.ancestors) != count or any(len(row) != count for row in inventory.ancestors):
        raise strict.Malformed("ancestors does not have one row and one column for each GPU")
