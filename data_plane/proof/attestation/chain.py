"""Verifies the certificate chain of a report, from the key that signed it to NVIDIA's device identity root.

There are five certificates, beginning with the signing one:

    0  `GH100 A01 GSP FMC LF`             the attestation key, made and certified inside the GPU
    1  `GH100 A01 GSP BROM`               this GPU, with a key that is burnt in; its serial number is the identity
    2  `NVIDIA GH100 Provisioner ICA 1`   the authority that certified the GPU in the factory
    3  `NVIDIA GH100 Identity`            the product line
    4  `NVIDIA Device Identity CA`        the root, pinned by its digest

The same root also certifies NVSwitches (`LS_10 A01 FSP BROM`). Therefore the kind of the device is read from
certificate 1, which must be that of a GPU's security processor (GSP). The certificates are valid until the year 9999;
a stolen key could only be found in a revocation list, which we cannot query offline.

Sources: the chains in tests/fixtures/attestation; TCG DICE Attestation Architecture 1.1, section 6.1
(DiceTcbInfo); NVIDIA/nvtrust@0281730 (cc_admin_utils.py) for which extension holds the firmware's id.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID, ObjectIdentifier, SignatureAlgorithmOID

from data_plane.documents.strict import Malformed
from data_plane.proof.attestation.reason import NotTrusted, Reason
from data_plane.proof.attestation.report import DIGEST_BYTES
from data_plane.proof.protocol.messages import CHAIN_BYTES_MAX

NVIDIA_ROOTS = frozenset({bytes.fromhex("102bf659d5419614c9d8e6aecebc80454eb26b1df6a769ac720b9a690b167b48")})
"""SHA-256 of `NVIDIA Device Identity CA` in DER, as in verifier_device_root.pem of NVIDIA/nvtrust@0281730."""

CERTIFICATES = 5
_CHIP = re.compile(r"(GH|GB)([0-9A-F]{3}) [A-Z][0-9]{2} GSP BROM")
_ARCHITECTURES = {"GH": "hopper", "GB": "blackwell"}

_UNDERSTOOD = {x509.BasicConstraints.oid, x509.KeyUsage.oid}
_FWID_EXTENSIONS = {ObjectIdentifier("2.23.133.5.4.1"), ObjectIdentifier("2.23.133.5.4.1.1")}
"""Hopper's and Blackwell's extension. The second one is DiceTcbInfo."""
_FWID = bytes.fromhex("303d 0609608648016503040202 0430")
"""The beginning of a firmware id in both extensions: SEQUENCE { OID SHA-384, OCTET STRING of 48 }, which is unique in
DER."""

_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    UserWarning,
)
"""What `cryptography` raises for malformed certificates. For some it only warns, unless warnings are errors."""


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU to which a chain belongs."""

    chip: str
    """Such as `GH100` or `GB100`."""
    architecture: str
    serial: str
    """The serial number of the GPU's identity certificate in upper-case hex. It is unique and never changes."""
    key: ec.EllipticCurvePublicKey
    """The attestation key."""
    fwid: bytes
    """The digest of the firmware that has the attestation key, from its certificate; empty if that has none."""


@dataclass(frozen=True, slots=True)
class _Certificate:
    """All parts of a certificate that we use. They are read together, so that malformed ones are found here only."""

    raw: x509.Certificate
    digest: bytes
    subject: x509.Name
    issuer: x509.Name
    begins: datetime
    ends: datetime
    key: CertificatePublicKeyTypes
    signed_with: ObjectIdentifier
    conditions: frozenset[ObjectIdentifier]
    """The critical extensions."""
    usage: x509.KeyUsage | None
    constraints: x509.BasicConstraints | None
    fwid: bytes


def verify(pem: bytes, roots: Collection[bytes], now: datetime) -> Device:
    """The device to which this chain belongs. Raises strict.Malformed or NotTrusted, and nothing else."""
    chain = _read(pem)
    if len(chain) != CERTIFICATES:
        raise NotTrusted(Reason.CHAIN, f"{len(chain)} certificates, not {CERTIFICATES}")
    if chain[-1].digest not in roots:
        raise NotTrusted(Reason.ROOT, "the chain does not end in a root we know")
    for depth, one in enumerate(chain):
        if not one.begins <= now <= one.ends:
            raise NotTrusted(Reason.EXPIRED, f"certificate {depth} is not valid at this time")
        _check_kind(one, depth)
        _check_use(one, depth)
    for depth, (one, issuer) in enumerate(pairwise(chain)):
        _check_issued(one, issuer, depth)
    return _device(chain)


def _read(pem: bytes) -> list[_Certificate]:
    if len(pem) > CHAIN_BYTES_MAX:
        raise Malformed(f"the chain is longer than {CHAIN_BYTES_MAX} bytes")
    try:
        return [_certificate(one) for one in x509.load_pem_x509_certificates(pem)]
    except _UNREADABLE:
        raise Malformed("the chain is not readable") from None


def _certificate(one: x509.Certificate) -> _Certificate:
    extensions = {extension.oid: extension for extension in one.extensions}
    values = [extension.value for extension in extensions.values()]
    return _Certificate(
        raw=one,
        digest=one.fingerprint(SHA256()),
        subject=one.subject,
        issuer=one.issuer,
        begins=one.not_valid_before_utc,
        ends=one.not_valid_after_utc,
        key=one.public_key(),
        signed_with=one.signature_algorithm_oid,
        conditions=frozenset(oid for oid, extension in extensions.items() if extension.critical),
        usage=next((value for value in values if isinstance(value, x509.KeyUsage)), None),
        constraints=next((value for value in values if isinstance(value, x509.BasicConstraints)), None),
        fwid=next((_fwid(value) for value in values if value.oid in _FWID_EXTENSIONS), b""),
    )


def _fwid(value: x509.ExtensionType) -> bytes:
    """The digest of the firmware that has the key. If there are several, it is the first one, which reports name."""
    return value.public_bytes().partition(_FWID)[2][:DIGEST_BYTES]


def _check_kind(one: _Certificate, depth: int) -> None:
    if not isinstance(one.key, ec.EllipticCurvePublicKey) or not isinstance(one.key.curve, ec.SECP384R1):
        raise NotTrusted(Reason.CHAIN, f"the key of certificate {depth} is not on P-384")
    if one.signed_with != SignatureAlgorithmOID.ECDSA_WITH_SHA384:
        raise NotTrusted(Reason.CHAIN, f"certificate {depth} is not signed with ECDSA and SHA-384")
    if one.conditions - _UNDERSTOOD:
        raise NotTrusted(Reason.CHAIN, f"certificate {depth} has a critical extension that we do not know")


def _check_use(one: _Certificate, depth: int) -> None:
    """Check that a certificate may be used at its place: 0 only signs reports, the others only issue certificates."""
    certifies = one.constraints is not None and one.constraints.ca
    if depth == 0:
        if certifies or one.usage is None or not one.usage.digital_signature or one.usage.key_cert_sign:
            raise NotTrusted(Reason.CHAIN, "the first certificate is not for signing reports")
        return
    if not certifies or one.usage is None or not one.usage.key_cert_sign:
        raise NotTrusted(Reason.CHAIN, f"certificate {depth} may not issue others")
    length = one.constraints.path_length if one.constraints else None
    if length is not None and length < depth - 1:  # How many issuing certificates are below this one.
        raise NotTrusted(Reason.CHAIN, f"certificate {depth} may not issue a certificate that issues others")


def _check_issued(one: _Certificate, issuer: _Certificate, depth: int) -> None:
    try:
        one.raw.verify_directly_issued_by(issuer.raw)
    except (InvalidSignature, ValueError, TypeError):  # A wrong signature, name or kind of key.
        raise NotTrusted(Reason.CHAIN, f"certificate {depth} was not issued by the next") from None


def _device(chain: list[_Certificate]) -> Device:
    signing, identity = chain[:2]
    names = identity.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    match = _CHIP.fullmatch(str(names[0].value)) if len(names) == 1 else None
    if not match or not isinstance(signing.key, ec.EllipticCurvePublicKey):
        raise NotTrusted(Reason.DEVICE, "the chain is not that of a Hopper or Blackwell GPU")
    return Device(
        chip=match[1] + match[2],
        architecture=_ARCHITECTURES[match[1]],
        serial=f"{identity.raw.serial_number:X}",
        key=signing.key,
        fwid=signing.fwid,
    )
