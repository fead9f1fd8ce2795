"""Reads the measurements that NVIDIA expects of a GPU: reference integrity manifests (RIM), SWID documents in XML.

There is a manifest for each driver version and for each VBIOS of a board. NVIDIA publishes and signs them. **The
signature is not checked here**, so a manifest is only as trustworthy as the way in which we got it. Measurement
`index="0"` of a manifest has the index 1 in reports.

Sources: ISO/IEC 19770-2:2015; TCG Reference Integrity Manifest Information Model 1.01; the manifest in
tests/fixtures/attestation.
"""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass

from data_plane.documents.strict import Malformed
from data_plane.proof.attestation.report import DIGEST_BYTES

BYTES_MAX = 256 * 1024
_SWID = "{http://standards.iso.org/iso/19770/-2/2015/schema.xsd}"
_HASH = "{http://www.w3.org/2001/04/xmlenc#sha384}Hash"
_ALTERNATIVES_MAX = 64


@dataclass(frozen=True, slots=True)
class Golden:
    """The measurements of one version, each with its correct values."""

    chip: str
    version: str
    """The version of the driver, such as `535.86.09`, or of the VBIOS, such as `96.00.5E.00.01`."""
    values: Mapping[int, frozenset[bytes]]
    """Correct values by the report's index, for the measurements that NVIDIA wants to be compared."""


def read(document: bytes) -> Golden:
    """The measurements in a manifest. Raises strict.Malformed for anything else."""
    # Manifests do not declare a document type. Without one, there are no entities to expand.
    if len(document) > BYTES_MAX or b"<!DOCTYPE" in document:
        raise Malformed("the manifest is too long, or declares a document type")
    try:
        root = ET.fromstring(document)  # noqa: S314 - bounded, and without a document type
        meta, payload = root.find(f"{_SWID}Meta"), root.find(f"{_SWID}Payload")
        if meta is None or payload is None:
            raise Malformed("the manifest has no Meta or no Payload")
        return Golden(
            chip=meta.attrib["product"],
            version=meta.attrib["colloquialVersion"].upper(),
            values=_values([one.attrib for one in payload if one.attrib["active"] == "True"]),
        )
    except (ET.ParseError, KeyError, ValueError):
        raise Malformed("not a manifest of measurements") from None


def _values(resources: list[dict[str, str]]) -> dict[int, frozenset[bytes]]:
    found: dict[int, frozenset[bytes]] = {}
    for one in resources:
        index, alternatives = int(one["index"]) + 1, int(one["alternatives"])
        if index in found or not 1 <= alternatives <= _ALTERNATIVES_MAX:
            raise Malformed("the manifest contradicts itself")
        values = frozenset(bytes.fromhex(one[f"{_HASH}{number}"]) for number in range(alternatives))
        if any(len(value) != DIGEST_BYTES for value in values):
            raise Malformed(f"a value of the manifest is not {DIGEST_BYTES} bytes")
        found[index] = values
    if not found:
        raise Malformed("the manifest compares nothing")
    return found
