"""Encodes and decodes the messages of a proof: frames with a strict JSON header and a blob.

A frame consists of the length of the rest (32-bit, big-endian), the length of the header (16-bit, big-endian), the
header (a JSON object whose key `message` names the message), and the blob, which is the remainder. Only `Groups`,
`Opened` and `Evidence` have a blob. Every size is checked before the content is parsed.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, cast

from data_plane.documents import strict
from data_plane.proof.protocol.messages import (
    ATTEST_NONCE_BYTES,
    BLOCKS_MAX,
    CHAIN_BYTES_MAX,
    CHAINS_MAX,
    GPUS_MAX,
    GROUP_MAX,
    GROUPS_MAX,
    HEADER_BYTES_MAX,
    INNER_MAX,
    ITERATIONS_MAX,
    NONCE_BYTES,
    OPENED_MAX,
    REPORT_BYTES_MAX,
    ROOT_BYTES,
    ROUNDS_MAX,
    SEED_BYTES,
    SMS_MAX,
    STEPS_MAX,
    TILES_MAX,
    AttestOrder,
    Committed,
    Evidence,
    Fill,
    Filled,
    FillOrder,
    GapsAnswer,
    GapsOrder,
    Goodbye,
    GpuIdentity,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
    Library,
    Message,
    Opened,
    OpenOrder,
    Phase,
    Refused,
    SmGaps,
    Source,
    TileKind,
    Tiles,
    TilesOrder,
    Walk,
    WalkOrder,
)

_NAME = re.compile(r"[\x20-\x7e]{1,96}")
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,76}")
_VERSION_TEXT = re.compile(r"[0-9A-Za-z._+-]{1,80}")
_PCI_DEVICE = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_PCI_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PATH = re.compile(r"/[\x21-\x7e]{1,200}")
_CODE = re.compile(r"[a-z0-9_]{1,40}")
_DETAIL = re.compile(r"[\x20-\x7e]{0,300}")


def encode(message: Message, blob: bytes = b"") -> bytes:
    """A whole frame, with its length."""
    header = json.dumps(
        {"message": _KINDS[type(message)], **_plain(asdict(message))}, sort_keys=True
    ).encode()
    if len(header) > HEADER_BYTES_MAX:
        raise ValueError(f"a header of {len(header)} bytes")
    body = len(header).to_bytes(2, "big") + header + blob
    return len(body).to_bytes(4, "big") + body


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def decode(body: bytes, wanted: "tuple[type[Any], ...]") -> "tuple[Message, bytes]":
    """The message in a frame's body, which must be one of the `wanted` kinds, and its blob.

    Raises strict.Malformed, and nothing else, whatever the bytes are.
    """
    if len(body) < 2 or len(body) < 2 + int.from_bytes(body[:2], "big"):
        raise strict.Malformed("shorter than its header")
    end = 2 + int.from_bytes(body[:2], "big")
    document = strict.load(body[2:end], HEADER_BYTES_MAX)
    kinds = tuple(_KINDS[one] for one in wanted)
    if "message" not in document:
        raise strict.Malformed("message is missing")
    kind = strict.one_of(document, "message", kinds)
    del document["message"]
    message = _BY_KIND[kind]
    strict.keys(document, {one.name for one in fields(message)})
    blob = body[end:]
    if blob and message not in (Groups, Opened, Evidence):
        raise strict.Malformed(f"{kind} has no blob")
    read = _READERS[message](document)
    if isinstance(read, Evidence) and len(blob) != read.report + read.chain:
        raise strict.Malformed("the blob does not have the size of the report and the chain")
    return read, blob


def _hello(raw: "dict[str, Any]") -> Hello:
    return Hello(strict.whole(raw, "version", 0, 1_000_000))


def _latency_order(raw: "dict[str, Any]") -> LatencyOrder:
    starts = tuple(
        strict.hexadecimal({"start": one}, "start", NONCE_BYTES)
        for one in strict.listing(raw, "starts", GPUS_MAX)
    )
    return LatencyOrder(strict.whole(raw, "rounds", 1, ROUNDS_MAX), starts)


def _objects(
    raw: "dict[str, Any]", key: str, shape: "type[Any]", most: int = GPUS_MAX
) -> "list[dict[str, Any]]":
    found = [strict.mapping(one, key) for one in strict.listing(raw, key, most)]
    for one in found:
        strict.keys(one, {field.name for field in fields(shape)})
    return found


def _fill_order(raw: "dict[str, Any]") -> FillOrder:
    return FillOrder(
        tuple(
            Fill(
                strict.hexadecimal(one, "seed", SEED_BYTES),
                strict.whole(one, "iterations", 1, ITERATIONS_MAX),
                strict.whole(one, "blocks", 1, BLOCKS_MAX),
            )
            for one in _objects(raw, "gpus", Fill)
        )
    )


def _walk_order(raw: "dict[str, Any]") -> WalkOrder:
    return WalkOrder(
        strict.whole(raw, "steps", 1, STEPS_MAX),
        strict.whole(raw, "group", 1, GROUP_MAX),
        tuple(
            Walk(strict.hexadecimal(one, "nonce", NONCE_BYTES), strict.whole(one, "chains", 1, CHAINS_MAX))
            for one in _objects(raw, "gpus", Walk)
        ),
    )


def _tiles_order(raw: "dict[str, Any]") -> TilesOrder:
    inner = strict.whole(raw, "inner", 32, INNER_MAX)
    if inner % 32:
        raise strict.Malformed("inner is not a multiple of 32")
    return TilesOrder(
        cast("TileKind", strict.one_of(raw, "kind", ("int8", "bf16"))),
        inner,
        strict.whole(raw, "columns", 1, TILES_MAX),
        strict.whole(raw, "group", 1, GROUP_MAX),
        tuple(
            Tiles(strict.hexadecimal(one, "seed", NONCE_BYTES), strict.whole(one, "tiles", 1, TILES_MAX))
            for one in _objects(raw, "gpus", Tiles)
        ),
    )


def _open_order(raw: "dict[str, Any]") -> OpenOrder:
    gpus: list[tuple[int, ...]] = []
    for one in strict.listing(raw, "gpus", GPUS_MAX):
        numbers = strict.listing({"groups": one}, "groups", OPENED_MAX)
        groups = tuple(strict.whole({"group": number}, "group", 0, GROUPS_MAX - 1) for number in numbers)
        if list(groups) != sorted(set(groups)):
            raise strict.Malformed("groups are not in ascending order")
        gpus.append(groups)
    return OpenOrder(_phase(raw), tuple(gpus))


def _gaps_order(raw: "dict[str, Any]") -> GapsOrder:
    return GapsOrder(
        strict.whole(raw, "milliseconds", 1, 2000), strict.whole(raw, "threshold_us", 1, 1_000_000)
    )


def _attest_order(raw: "dict[str, Any]") -> AttestOrder:
    return AttestOrder(
        tuple(
            strict.hexadecimal({"nonce": one}, "nonce", ATTEST_NONCE_BYTES)
            for one in strict.listing(raw, "nonces", GPUS_MAX)
        )
    )


def _goodbye(_: "dict[str, Any]") -> Goodbye:
    return Goodbye()


_WORD = (1 << 32) - 1
_MEMORY_MAX = 1 << 44
"""16 TiB: far more than any card has, and small enough for every integer type that stores it."""


def _identity(raw: "dict[str, Any]") -> Identity:
    gpus = tuple(_gpu_identity(one) for one in _objects(raw, "gpus", GpuIdentity))
    if [gpu.index for gpu in gpus] != list(range(len(gpus))):
        raise strict.Malformed("GPU indices are not 0, 1, 2, ...")
    return Identity(
        strict.whole(raw, "version", 0, 1_000_000),
        cast("Source", strict.one_of(raw, "source", ("cuda", "emulated"))),
        strict.text(raw, "driver", _VERSION_TEXT),
        strict.text(raw, "cuda", _VERSION_TEXT),
        strict.hexadecimal(raw, "kernels_sha256", 32),
        tuple(
            Library(
                strict.text(one, "name", _NAME),
                strict.text(one, "path", _PATH),
                strict.hexadecimal(one, "sha256", 32),
            )
            for one in _objects(raw, "libraries", Library, 16)
        ),
        gpus,
    )


def _gpu_identity(raw: "dict[str, Any]") -> GpuIdentity:
    return GpuIdentity(
        index=strict.whole(raw, "index", 0, GPUS_MAX - 1),
        nvml_name=_or_none(raw, "nvml_name", _NAME),
        nvml_uuid=_or_none(raw, "nvml_uuid", _UUID),
        nvml_memory=_whole_or_none(raw, "nvml_memory", _MEMORY_MAX),
        nvml_pci_device=_or_none(raw, "nvml_pci_device", _PCI_DEVICE),
        nvml_pci_bus=_or_none(raw, "nvml_pci_bus", _PCI_BUS),
        nvml_sharing=strict.one_of(raw, "nvml_sharing", ("none", "mig", "vgpu", "unknown")),
        nvml_ecc=None if raw["nvml_ecc"] is None else _flag(raw, "nvml_ecc"),
        nvml_throttle=_whole_or_none(raw, "nvml_throttle", 1 << 62),
        nvml_processes=_whole_or_none(raw, "nvml_processes", 1 << 20),
        cuda_name=strict.text(raw, "cuda_name", _NAME),
        cuda_uuid=strict.text(raw, "cuda_uuid", _UUID),
        cuda_memory=strict.whole(raw, "cuda_memory", 1, _MEMORY_MAX),
        cuda_free=strict.whole(raw, "cuda_free", 0, _MEMORY_MAX),
        cuda_pci_bus=strict.text(raw, "cuda_pci_bus", _PCI_BUS),
        cuda_capability=strict.text(raw, "cuda_capability", _VERSION_TEXT),
        cuda_sms=strict.whole(raw, "cuda_sms", 1, SMS_MAX),
        cuda_sm_khz=strict.whole(raw, "cuda_sm_khz", 0, _WORD),
        cuda_memory_khz=strict.whole(raw, "cuda_memory_khz", 0, _WORD),
        cuda_bus_bits=strict.whole(raw, "cuda_bus_bits", 0, 1 << 20),
        cuda_l2=strict.whole(raw, "cuda_l2", 0, _MEMORY_MAX),
        cuda_ecc=_flag(raw, "cuda_ecc"),
        cuda_mps=_flag(raw, "cuda_mps"),
        sysfs_pci_device=_or_none(raw, "sysfs_pci_device", _PCI_DEVICE),
        sysfs_pci_subsystem=_or_none(raw, "sysfs_pci_subsystem", _PCI_DEVICE),
        proc_model=_or_none(raw, "proc_model", _NAME),
    )


def _latency_answer(raw: "dict[str, Any]") -> LatencyAnswer:
    return LatencyAnswer(_gpu(raw), strict.hexadecimal(raw, "final", NONCE_BYTES))


def _filled(raw: "dict[str, Any]") -> Filled:
    return Filled(
        _gpu(raw), strict.whole(raw, "free", 0, _MEMORY_MAX), strict.whole(raw, "device_us", 0, 1 << 40)
    )


def _committed(raw: "dict[str, Any]") -> Committed:
    return Committed(
        _gpu(raw),
        _phase(raw),
        strict.hexadecimal(raw, "root", ROOT_BYTES),
        strict.whole(raw, "device_us", 0, 1 << 40),
        _whole_or_none(raw, "throttle", 1 << 62),
    )


def _groups(raw: "dict[str, Any]") -> Groups:
    return Groups(_gpu(raw), _phase(raw))


def _opened(raw: "dict[str, Any]") -> Opened:
    return Opened(_gpu(raw), _phase(raw))


def _gaps_answer(raw: "dict[str, Any]") -> GapsAnswer:
    return GapsAnswer(
        _gpu(raw),
        tuple(
            SmGaps(
                strict.whole(one, "sm", 0, SMS_MAX - 1),
                strict.whole(one, "samples", 0, _WORD),
                strict.whole(one, "gaps", 0, _WORD),
                strict.whole(one, "longest_us", 0, _WORD),
            )
            for one in _objects(raw, "sms", SmGaps, SMS_MAX)
        ),
    )


def _evidence(raw: "dict[str, Any]") -> Evidence:
    report = strict.whole(raw, "report", 0, REPORT_BYTES_MAX)
    chain = strict.whole(raw, "chain", 0, CHAIN_BYTES_MAX)
    missing = _or_none(raw, "missing", _CODE)
    if (report > 0, chain > 0) != (missing is None, missing is None):
        raise strict.Malformed("evidence must either be there or be missing")
    return Evidence(_gpu(raw), report, chain, missing)


def _refused(raw: "dict[str, Any]") -> Refused:
    gpu = None if raw["gpu"] is None else _gpu(raw)
    return Refused(gpu, strict.text(raw, "code", _CODE), strict.text(raw, "detail", _DETAIL))


def _gpu(raw: "dict[str, Any]") -> int:
    return strict.whole(raw, "gpu", 0, GPUS_MAX - 1)


def _phase(raw: "dict[str, Any]") -> Phase:
    return cast("Phase", strict.one_of(raw, "phase", ("walk", "int8", "bf16")))


def _flag(raw: "dict[str, Any]", key: str) -> bool:
    value = raw[key]
    if not isinstance(value, bool):
        raise strict.Malformed(f"{key} is neither true nor false")
    return value


def _or_none(raw: "dict[str, Any]", key: str, pattern: "re.Pattern[str]") -> "str | None":
    return None if raw[key] is None else strict.text(raw, key, pattern)


def _whole_or_none(raw: "dict[str, Any]", key: str, most: int) -> "int | None":
    return None if raw[key] is None else strict.whole(raw, key, 0, most)


_READERS: "dict[type[Any], Callable[[dict[str, Any]], Message]]" = {
    Hello: _hello,
    LatencyOrder: _latency_order,
    FillOrder: _fill_order,
    WalkOrder: _walk_order,
    TilesOrder: _tiles_order,
    OpenOrder: _open_order,
    GapsOrder: _gaps_order,
    AttestOrder: _attest_order,
    Goodbye: _goodbye,
    Identity: _identity,
    LatencyAnswer: _latency_answer,
    Filled: _filled,
    Committed: _committed,
    Groups: _groups,
    Opened: _opened,
    GapsAnswer: _gaps_answer,
    Evidence: _evidence,
    Refused: _refused,
}
_KINDS: "dict[type[Any], str]" = {
    one: re.sub(r"(?<!^)(?=[A-Z])", "_", one.__name__).lower() for one in _READERS
}
_BY_KIND: "dict[str, type[Any]]" = {kind: one for one, kind in _KINDS.items()}
