"""A small certificate authority: certificates for tests, some of them wrong on purpose."""

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from control_plane.world import utc_now
from data_plane.proof.verifier.service.tls import TlsFiles

_DAY = timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@dataclass(frozen=True)
class Issued:
    certificate: bytes
    key: bytes


class Authority:
    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
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
        self.certificate = (
            self._about(self._name, self._key.public_key(), utc_now() + _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )

    def _about(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, ends: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(ends - 2 * _DAY)
            .not_valid_after(ends)
        )

    def issue(self, name: str, *, ends_in: timedelta = _DAY) -> Issued:
        """For a server or a client called `name`, a host name or an IP address."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            other: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            other = x509.DNSName(name)
        certificate = (
            self._about(_name(name), key.public_key(), utc_now() + ends_in)
            .add_extension(x509.SubjectAlternativeName([other]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return Issued(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def write(folder: Path, issued: Issued, trusted: Authority) -> TlsFiles:
    """Write them as files, and overwrite those that exist."""
    folder.mkdir(exist_ok=True)
    files = TlsFiles(folder / "certificate.pem", folder / "key.pem", folder / "ca.pem")
    files.certificate.write_bytes(issued.certificate)
    files.key.touch(mode=0o600)
    files.key.write_bytes(issued.key)
    files.ca.write_bytes(trusted.certificate)
    return files
