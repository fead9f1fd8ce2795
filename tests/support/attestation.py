"""GPUs made of test keys: chains and reports in NVIDIA's format, honest unless a test spoils one thing.

And the real ones in tests/fixtures/attestation. `judge` asks for the verdict on either.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from data_plane.proof.attestation.golden import Golden
from data_plane.proof.attestation.reason import Reason
from data_plane.proof.attestation.verdict import Attested, Rejected, verify

FIXTURES = Path("tests/fixtures/attestation")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NONCE = bytes(range(100, 132))
FWID = bytes(range(48))
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973
"""Of P-384's base point (SEC 2)."""

_HOPPER = x509.ObjectIdentifier("2.23.133.5.4.1")
_BLACKWELL = x509.ObjectIdentifier("2.23.133.5.4.1.1")
_FWID = bytes.fromhex("303d06096086480165030402020430")


def hopper_extension(fwid: bytes) -> x509.UnrecognizedExtension:
    """A version, a public key (left out here), the firmware's id."""
    inner = bytes.fromhex("020101") + _FWID + fwid
    return x509.UnrecognizedExtension(_HOPPER, bytes([0x30, len(inner)]) + inner)


def blackwell_extension(fwid: bytes) -> x509.UnrecognizedExtension:
    """DiceTcbInfo: vendor, and a list of two firmware ids of which the second is empty."""
    ids = _FWID + fwid + _FWID + bytes(48)
    inner = b"\x80\x06NVIDIA" + bytes([0xA6, len(ids)]) + ids
    return x509.UnrecognizedExtension(_BLACKWELL, bytes([0x30, 0x81, len(inner)]) + inner)


@dataclass(frozen=True)
class Certificate:
    """One certificate to be made. `signs` and `certifies` are its key usage; None leaves the extension out."""

    names: tuple[str, ...]
    serial: int
    signs: bool | None = False
    certifies: bool = True
    authority: bool | None = True
    path_length: int | None = None
    begins: datetime = datetime(2021, 1, 1, tzinfo=UTC)
    ends: datetime = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    curve: ec.EllipticCurve = field(default_factory=ec.SECP384R1)
    hashed: SHA256 | SHA384 = field(default_factory=SHA384)
    extension: x509.UnrecognizedExtension | None = None
    critical: bool = False
    forged: bool = False
    """Signed by a key of the right name and nothing else."""


def line(chip: str = "GH100", fwid: bytes = FWID, serial: int = 0x41431D480FE5E87274) -> list[Certificate]:
    """The five certificates of one GPU, the signing one first."""
    extension = blackwell_extension(fwid) if chip.startswith("GB") else hopper_extension(fwid)
    return [
        Certificate(
            (f"{chip} A01 GSP FMC LF",), 5, signs=True, certifies=False, authority=None, extension=extension
        ),
        Certificate((f"{chip} A01 GSP BROM",), serial),
        Certificate((f"NVIDIA {chip} Provisioner ICA 1",), 3),
        Certificate((f"NVIDIA {chip} Identity",), 2),
        Certificate(("NVIDIA Device Identity CA",), 1),
    ]


def spoilt(depth: int, **changes: Any) -> list[Certificate]:
    """An honest line with one certificate changed."""
    certificates = line()
    certificates[depth] = replace(certificates[depth], **changes)
    return certificates


@dataclass(frozen=True)
class Gpu:
    """Certificates, the signing one first, and the key of that one."""

    chain: tuple[x509.Certificate, ...]
    key: ec.EllipticCurvePrivateKey

    @property
    def root(self) -> bytes:
        return self.chain[-1].fingerprint(SHA256())

    @property
    def pem(self) -> bytes:
        return pem(self.chain)


def pem(chain: Sequence[x509.Certificate]) -> bytes:
    return armoured([one.public_bytes(Encoding.DER) for one in chain])


def armoured(ders: Sequence[bytes]) -> bytes:
    """PEM of bytes that need not be certificates."""
    begin, end = b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n"
    return b"".join(begin + base64.encodebytes(der) + end for der in ders)


@cache
def _key(depth: int, curve: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key({"secp384r1": ec.SECP384R1, "secp256r1": ec.SECP256R1}[curve]())


def make(certificates: Sequence[Certificate] | None = None) -> Gpu:
    certificates = certificates or line()
    keys = [_key(depth, one.curve.name) for depth, one in enumerate(certificates)]
    made: list[x509.Certificate] = []
    for depth, one in enumerate(certificates):
        above = min(depth + 1, len(certificates) - 1)
        signer = ec.generate_private_key(ec.SECP384R1()) if one.forged else keys[above]
        made.append(_issue(one, keys[depth].public_key(), certificates[above], signer))
    return Gpu(tuple(made), keys[0])


def _issue(
    one: Certificate,
    key: ec.EllipticCurvePublicKey,
    issuer: Certificate,
    signer: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(one))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(one.serial)
        .not_valid_before(one.begins)
        .not_valid_after(one.ends)
    )
    if one.authority is not None:
        constraints = x509.BasicConstraints(ca=one.authority, path_length=one.path_length)
        builder = builder.add_extension(constraints, critical=True)
    if one.signs is not None:
        builder = builder.add_extension(_usage(signs=one.signs, certifies=one.certifies), critical=True)
    if one.extension:
        builder = builder.add_extension(one.extension, critical=one.critical)
    return builder.sign(signer, one.hashed)


def _name(one: Certificate) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in one.names])


def _usage(*, signs: bool, certifies: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs,
        key_cert_sign=certifies,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def block(index: int, value: bytes, *, specification: int = 1, kind: int = 1) -> bytes:
    """One measurement as the record holds it."""
    inside = bytes([kind]) + len(value).to_bytes(2, "little") + value
    return bytes([index, specification]) + len(inside).to_bytes(2, "little") + inside


def opaque_field(kind: int, value: bytes) -> bytes:
    return kind.to_bytes(2, "little") + len(value).to_bytes(2, "little") + value


OPAQUE: Mapping[int, bytes] = {
    6: bytes.fromhex("00 5e 00 96 01 00 00 00"),
    17: b"1010\0",
    18: b"0200\0",
    3: b"550.90.07\0",
    11: b"\xaa",
    20: FWID,
}
"""VBIOS, project, project SKU, driver, video decoder on, firmware id."""
MEASURED = (bytes(48), b"\x01" * 48, b"\x02" * 48)


@dataclass(frozen=True)
class Report:
    """A report to be made. What is None follows from the rest."""

    nonce: bytes
    request: bytes = b"\x11\xe0\x01\xff"
    slot: int = 0
    response: bytes = b"\x11\x60\x00\x00"
    blocks: tuple[bytes, ...] = tuple(block(index, value) for index, value in enumerate(MEASURED, 1))
    count: int | None = None
    record_bytes: int | None = None
    gpu_nonce: bytes = b"\x77" * 32
    opaque: bytes = b"".join(opaque_field(kind, value) for kind, value in OPAQUE.items())
    opaque_bytes: int | None = None

    def unsigned(self) -> bytes:
        record = b"".join(self.blocks)
        count = len(self.blocks) if self.count is None else self.count
        record_bytes = len(record) if self.record_bytes is None else self.record_bytes
        opaque_bytes = len(self.opaque) if self.opaque_bytes is None else self.opaque_bytes
        return b"".join(
            [
                self.request,
                self.nonce,
                bytes([self.slot]),
                self.response,
                bytes([count]),
                record_bytes.to_bytes(3, "little"),
                record,
                self.gpu_nonce,
                opaque_bytes.to_bytes(2, "little"),
                self.opaque,
            ]
        )

    def signed_by(self, gpu: Gpu) -> bytes:
        content = self.unsigned()
        r, s = decode_dss_signature(gpu.key.sign(content, ec.ECDSA(SHA384())))
        return content + signature(r, s)


def signature(r: int, s: int) -> bytes:
    return r.to_bytes(48, "big") + s.to_bytes(48, "big")


def with_opaque(**changes: bytes | None) -> bytes:
    """The opaque data with fields (`f20=...`) changed, or left out where None."""
    fields = {**OPAQUE, **{int(key[1:]): value for key, value in changes.items()}}
    return b"".join(opaque_field(kind, value) for kind, value in fields.items() if value is not None)


HONEST = make()


def judge(
    report: Report | bytes | None = None,
    gpu: Gpu | None = None,
    *,
    chain: bytes | None = None,
    golden: Sequence[Golden] = (),
    now: datetime = NOW,
    model: str = "h100-sxm-80gb",
) -> Attested | Rejected:
    """The verdict on a GPU of ours, under its own root; honest where nothing else is given."""
    gpu = gpu or HONEST
    report = report or Report(NONCE)
    return verify(
        report if isinstance(report, bytes) else report.signed_by(gpu),
        gpu.pem if chain is None else chain,
        nonce=NONCE,
        roots={gpu.root},
        now=now,
        model=model,
        golden=golden,
    )


def code(verdict: Attested | Rejected) -> Reason | None:
    return verdict.code if isinstance(verdict, Rejected) else None


def real(name: str) -> tuple[bytes, bytes, bytes]:
    """Report and chain of a real device, and the nonce that the report says it answers."""
    content = (FIXTURES / f"{name}.report.bin").read_bytes()
    return content, (FIXTURES / f"{name}.chain.pem").read_bytes(), content[4:36]
