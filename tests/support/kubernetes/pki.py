"""Certificates of a cluster: its authorities, what they issue, and what they sign for others.

`cryptography` 38, which Debian 12 has, is enough for all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LASTS = timedelta(days=3650)
CERTIFICATE_LASTS = timedelta(days=365)
CLOCKS_DIFFER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a certificate names. Kubernetes takes the name for the user, and organizations for its groups."""

    name: str
    organizations: tuple[str, ...] = ()

    def rdns(self) -> x509.Name:
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in self.organizations]
        return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, self.name)])


def new_key() -> bytes:
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def public_half(key: bytes) -> bytes:
    return (
        _loaded(key)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def new_authority(name: str, now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = Subject(name).rdns()
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(_certificate_pem(builder.sign(key, hashes.SHA256())), _pem(key))


def issue(authority: Pair, subject: Subject, now: datetime, *, names: Sequence[str] = ()) -> Pair:
    """A new key with its certificate: of a server at `names` (hosts and addresses), of a client if there are none."""
    key = new_key()
    return Pair(_signed(authority, subject, _loaded(key).public_key(), now, names), key)


def new_request(key: bytes, subject: Subject) -> bytes:
    """A signing request (PEM) for a key."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject.rdns())
    return builder.sign(_loaded(key), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def sign(
    authority: Pair, request: bytes, subject: Subject, now: datetime, *, names: Sequence[str] = ()
) -> bytes:
    """The certificate (PEM) for the key of a signing request, PEM or DER. The subject is ours to say, not the request's.

    Raises ValueError when it is no request, or not signed by its own key.
    """
    load = x509.load_pem_x509_csr if request.lstrip().startswith(b"-----") else x509.load_der_x509_csr
    asked = load(request)
    if not asked.is_signature_valid:
        raise ValueError("the request is not signed by its own key")
    return _signed(authority, subject, cast("ec.EllipticCurvePublicKey", asked.public_key()), now, names)


def _signed(
    authority: Pair, subject: Subject, key: ec.EllipticCurvePublicKey, now: datetime, names: Sequence[str]
) -> bytes:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = _builder(subject.rdns(), issuer.subject, key, now, CERTIFICATE_LASTS).add_extension(
        x509.ExtendedKeyUsage([purpose]), critical=False
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
        )
    return _certificate_pem(builder.sign(_loaded(authority.key), hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lasts: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + lasts)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _loaded(key: bytes) -> ec.EllipticCurvePrivateKey:
    return cast("ec.EllipticCurvePrivateKey", serialization.load_pem_private_key(key, password=None))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
