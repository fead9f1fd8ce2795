"""What NVIDIA says a GPU should measure: reference integrity manifests (RIM), SWID documents in XML.

One is about a driver version, another about the VBIOS of a board. NVIDIA publishes them and signs them;
**that signature is not checked here**, so a manifest is only as good as the way it came to us. Measurement
`index="0"` of a manifest is the report's index 1.

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
    """The measurements of one version, each with the values that are right."""

    chip: str
    version: str
    """Of the driver, `535.86.09`, or of the VBIOS, `96.00.5E.00.01`."""
    values: Mapping[int, frozenset[bytes]]
    """By the report's index. Only those that NVIDIA wants compared."""


def read(document: bytes) -> Golden:
    """Raises strict.Malformed for anything that is not such a manifest."""
    # No manifest declares a document type, and with none there are no entities to expand.
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
