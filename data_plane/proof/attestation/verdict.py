"""Judges whether a GPU has attested itself, by its report and certificate chain. No IO, no network.

If the attestation is accepted, a genuine NVIDIA chip with a unique identity has answered *this* nonce, and firmware
that NVIDIA certified has signed the answer. It does not mean that the GPU is in this machine, or whole, unshared and
unthrottled: anybody who can reach such a GPU can have it answer. The other phases prove that.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from data_plane.documents.strict import Malformed
from data_plane.proof.attestation import chain, report
from data_plane.proof.attestation.chain import Device
from data_plane.proof.attestation.golden import Golden
from data_plane.proof.attestation.reason import NotTrusted, Reason
from data_plane.proof.attestation.report import Report

_CHIPS = {"h100": "GH100", "h200": "GH100", "gh200": "GH100", "b200": "GB100"}
"""Chips by the first word of our name for the model."""
_NVDEC_INDEX = 36


@dataclass(frozen=True, slots=True)
class Attested:
    chip: str
    """Such as `GH100`. A report says no more about the model: H100, H200 and GH200 have the same chip."""
    architecture: str
    """`hopper` or `blackwell`."""
    device: str
    """The GPU's identity in upper-case hex, as in its certificate. It is unique and never changes."""
    board: str
    """NVIDIA's project and SKU of the card, such as `1010-0200`."""
    driver: str
    vbios: str
    measured: int
    """How many measurements of the report are not zero."""
    compared: int
    """How many measurements were compared with NVIDIA's values, and were right."""
    unchecked: tuple[str, ...]
    """What was not checked: always `revocation`, which is not possible offline; `driver_measurements` and
    `vbios_measurements` without a manifest of that version; `firmware_id` if the driver is too old to report it."""


@dataclass(frozen=True, slots=True)
class Rejected:
    code: Reason
    why: str


def chip_of(model: str) -> str | None:
    """The chip of a model, or None if no card of that model can attest itself."""
    return _CHIPS.get(model.partition("-")[0])


def verify(
    content: bytes,
    pem: bytes,
    *,
    nonce: bytes,
    roots: Collection[bytes],
    now: datetime,
    model: str,
    golden: Collection[Golden] = (),
) -> Attested | Rejected:
    """Judge one GPU's report and its certificate chain (PEM, the signing certificate first). Neither makes it raise.

    `nonce` is the one of our order, `roots` are SHA-256 digests of trusted root certificates, `model` is our name for
    what was sold. Of `golden`, those for the report's driver or VBIOS version are used.
    """
    try:
        said = report.read(content)
        _check_nonce(said, nonce)
        device = chain.verify(pem, roots, now)
        _check_signature(said, device)
        _check_firmware(said, device)
        _check_model(device, model)
        return _attested(said, device, golden)
    except Malformed as error:
        return Rejected(Reason.MALFORMED, str(error))
    except NotTrusted as error:
        return Rejected(error.reason, str(error))


def _check_nonce(said: Report, nonce: bytes) -> None:
    if said.nonce != nonce:
        raise NotTrusted(Reason.NONCE, "the report answers another nonce")


def _check_signature(said: Report, device: Device) -> None:
    half = report.SIGNATURE_BYTES // 2
    r, s = (int.from_bytes(part, "big") for part in (said.signature[:half], said.signature[half:]))
    try:
        device.key.verify(encode_dss_signature(r, s), said.signed, ec.ECDSA(SHA384()))
    except InvalidSignature:
        raise NotTrusted(Reason.SIGNATURE, "the report was not signed by this GPU") from None


def _check_firmware(said: Report, device: Device) -> None:
    if said.fwid is not None and said.fwid != device.fwid:
        raise NotTrusted(Reason.FIRMWARE, "the report and the certificate name different firmware")


def _check_model(device: Device, model: str) -> None:
    if device.chip != chip_of(model):
        raise NotTrusted(Reason.MODEL, f"a {device.chip} attested itself, {model} was sold")


def _attested(said: Report, device: Device, golden: Collection[Golden]) -> Attested:
    unchecked = ["revocation"]
    compared = 0
    for part, version in (("driver", said.driver), ("vbios", said.vbios)):
        right = [one for one in golden if (one.chip, one.version) == (device.chip, version.upper())]
        for one in right:
            compared += _compare(said, one)
        if not right:
            unchecked.append(f"{part}_measurements")
    if said.fwid is None:
        unchecked.append("firmware_id")
    return Attested(
        chip=device.chip,
        architecture=device.architecture,
        device=device.serial,
        board=said.board,
        driver=said.driver,
        vbios=said.vbios,
        measured=sum(any(value) for value in said.measurements.values()),
        compared=compared,
        unchecked=tuple(unchecked),
    )


def _compare(said: Report, golden: Golden) -> int:
    skipped = {_NVDEC_INDEX} if said.nvdec_off else set[int]()
    for index in golden.values.keys() - skipped:
        if said.measurements.get(index) not in golden.values[index]:
            raise NotTrusted(Reason.MEASUREMENT, f"measurement {index} is not that of {golden.version}")
    return len(golden.values.keys() - skipped)
