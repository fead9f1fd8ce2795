"""Reads an attestation report: the driver's request to the GPU, and the GPU's signed response.

NVML returns two SPDM messages, one directly after the other. Numbers are little-endian.

    request    0  version 0x11, GET_MEASUREMENTS 0xE0, 1 (sign it), 0xFF (all of them)
               4  our nonce, 32 bytes
              36  certificate slot, 0
    response   0  version 0x11, MEASUREMENTS 0x60, 0, 0
               4  number of measurements, 1 byte; their size together, 3 bytes
               8  measurements: index 1, specification 1 (DMTF), size 2; within: type 1, size 2, value
               .  the GPU's nonce, 32 bytes
               .  size of the opaque data, 2 bytes; fields in it: type 2, size 2, value
               .  ECDSA P-384 signature over everything before it: r and s, 48 bytes each, the high byte first

A report of another SPDM version signs other bytes, so only this version is accepted.

Sources: DMTF DSP0274 1.1.0, section 10.11; the opaque fields as read by NVIDIA/nvtrust@0281730
(spdm_msrt_resp_msg.py) and NVIDIA/attestation-sdk@73c032e (gpu_opaque_data_parser.cpp).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from data_plane.documents.strict import Malformed
from data_plane.proof.protocol.messages import REPORT_BYTES_MAX

NONCE_BYTES = 32
SIGNATURE_BYTES = 96
DIGEST_BYTES = 48
"""SHA-384."""

_REQUEST = b"\x11\xe0\x01\xff"
_SLOT = b"\x00"
_RESPONSE = b"\x11\x60\x00\x00"
_DMTF = b"\x01"

_DRIVER, _VBIOS, _NVDEC, _PROJECT, _PROJECT_SKU, _FWID = 3, 6, 11, 17, 18, 20
_NVDEC_OFF = b"\x55"
_TEXT = re.compile(rb"([0-9A-Za-z._-]{1,32})\0*")


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report, of which nothing can be trusted before its signature is verified."""

    nonce: bytes
    measurements: Mapping[int, bytes]
    """Measurements by their index, which begins at 1. A measurement is all zero if the GPU has nothing to measure."""
    driver: str
    vbios: str
    """As nvidia-smi prints it, such as `96.00.5E.00.01`."""
    board: str
    """NVIDIA's project and SKU, such as `1010-0200`."""
    fwid: bytes | None
    """The digest of the firmware that has the signing key. Older drivers do not report it."""
    nvdec_off: bool
    """Whether the first video decoder is off, so that its measurement (index 36) is not compared."""
    signed: bytes
    signature: bytes


def read(content: bytes) -> Report:
    """The report in `content`. Raises strict.Malformed, and nothing else, whatever the bytes are."""
    if len(content) > REPORT_BYTES_MAX:
        raise Malformed(f"the report is longer than {REPORT_BYTES_MAX} bytes")
    cursor = _Cursor(content)
    cursor.exactly(_REQUEST, "the request's header")
    nonce = cursor.take(NONCE_BYTES, "the nonce")
    cursor.exactly(_SLOT, "the certificate slot")
    cursor.exactly(_RESPONSE, "the response's header")
    count = cursor.number(1, "the number of measurements")
    record = cursor.take(cursor.number(3, "the measurements' size"), "the measurements")
    cursor.take(NONCE_BYTES, "the GPU's nonce")
    opaque = cursor.take(cursor.number(2, "the opaque data's size"), "the opaque data")
    signature = cursor.take(SIGNATURE_BYTES, "the signature")
    cursor.close("the report")

    fields = _fields(opaque)
    return Report(
        nonce=nonce,
        measurements=_measurements(record, count),
        driver=_text(fields, _DRIVER, "the driver's version"),
        vbios=_vbios(fields),
        board=f"{_text(fields, _PROJECT, 'the project')}-{_text(fields, _PROJECT_SKU, 'the project SKU')}",
        fwid=_fwid(fields),
        nvdec_off=fields.get(_NVDEC) == _NVDEC_OFF,
        signed=content[:-SIGNATURE_BYTES],
        signature=signature,
    )


class _Cursor:
    """A position in bytes. No read goes beyond the end, and `close` raises if bytes are left."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, size: int, what: str) -> bytes:
        if size > self.left:
            raise Malformed(f"ends within {what}")
        self._at += size
        return self._content[self._at - size : self._at]

    def number(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "little")

    def exactly(self, expected: bytes, what: str) -> None:
        if self.take(len(expected), what) != expected:
            raise Malformed(f"{what} is not the expected one")

    def close(self, what: str) -> None:
        if self.left:
            raise Malformed(f"{what} has {self.left} bytes too many")


def _measurements(record: bytes, count: int) -> dict[int, bytes]:
    cursor = _Cursor(record)
    found: dict[int, bytes] = {}
    for _ in range(count):
        index = cursor.number(1, "a measurement's index")
        if found and index <= max(found):
            raise Malformed("the measurements are not in ascending order")
        cursor.exactly(_DMTF, "a measurement's specification")
        block = _Cursor(cursor.take(cursor.number(2, "a measurement's size"), "a measurement"))
        block.take(1, "a measurement's type")
        found[index] = block.take(block.number(2, "a value's size"), "a value")
        block.close("a measurement")
    cursor.close("the list of measurements")
    if not found:
        raise Malformed("nothing was measured")
    return found


def _fields(opaque: bytes) -> dict[int, bytes]:
    cursor = _Cursor(opaque)
    found: dict[int, bytes] = {}
    while cursor.left:
        kind = cursor.number(2, "an opaque field's type")
        if kind in found:
            raise Malformed("an opaque field appears twice")  # Two readers could understand it differently.
        found[kind] = cursor.take(cursor.number(2, "an opaque field's size"), "an opaque field")
    return found


def _text(fields: Mapping[int, bytes], kind: int, what: str) -> str:
    match = _TEXT.fullmatch(fields.get(kind, b""))
    if not match:
        raise Malformed(f"{what} is missing or not acceptable text")
    return match[1].decode("ascii")


def _vbios(fields: Mapping[int, bytes]) -> str:
    value = fields.get(_VBIOS, b"")
    if len(value) != 8:
        raise Malformed("the VBIOS version is not 8 bytes")
    # A 32-bit version, followed by a byte of the board's manufacturer.
    return ".".join(f"{byte:02X}" for byte in (value[3], value[2], value[1], value[0], value[4]))


def _fwid(fields: Mapping[int, bytes]) -> bytes | None:
    value = fields.get(_FWID)
    if value is not None and len(value) != DIGEST_BYTES:
        raise Malformed(f"the firmware's id is not {DIGEST_BYTES} bytes")
    return value
