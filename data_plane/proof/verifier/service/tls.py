"""Mutual TLS: three files on each side, which are read again whenever one of them has changed.

To renew a certificate, write new files; no restart is needed. New connections use the new files, and all connections
are remade every ten minutes (`server`), so that old certificates and distrusted CAs are out of use by then. While
certificate and key do not match, as in the middle of a renewal, the last matching ones are used.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from environment.private_files import TooOpen, read_private

log = structlog.get_logger("verifier")


class CertificatesError(ValueError):
    """A file is missing or not usable, or other users may read a key. The message names the file, not its content."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our certificate with its chain, its key, and the CA of the other side's certificates."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """The content of the files."""

    certificate: bytes
    key: bytes
    ca: bytes


class CertificateFiles:
    """The last usable content of the files. Raises CertificatesError if it is not usable at the start."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = _stamps(files)
        self.current = _read(files)

    def changed(self) -> bool:
        """Read the files again if they have changed. Returns whether `current` has changed."""
        try:
            stamps = _stamps(self._files)
            if stamps == self._seen:
                return False
            found = _read(self._files)
        except CertificatesError as error:
            log.warning("certificates_not_usable", why=str(error))
            return False
        self._seen = stamps
        if found == self.current:
            return False
        self.current = found
        log.info("certificates_changed", certificate=str(self._files.certificate))
        return True


def server_credentials(files: CertificateFiles) -> grpc.ServerCredentials:
    """Credentials that refuse clients without a certificate of the CA. The files are checked for every connection."""

    def look() -> grpc.ServerCertificateConfiguration:
        files.changed()
        return _configuration(files.current)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(files.current), look, require_client_authentication=True
    )


def _configuration(found: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(found.key, found.certificate)], found.ca)


def channel_credentials(found: Certificates) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(found.ca, found.key, found.certificate)


def _stamps(files: TlsFiles) -> tuple[tuple[int, int, int, int], ...]:
    """Values that change if a file is changed or replaced."""
    stamps = []
    for path in (files.certificate, files.key, files.ca):
        try:
            status = path.stat()
        except OSError as error:
            raise CertificatesError(f"{path}: {error.strerror}") from None
        stamps.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode))
    return tuple(stamps)


def _read(files: TlsFiles) -> Certificates:
    try:
        found = Certificates(files.certificate.read_bytes(), read_private(files.key), files.ca.read_bytes())
    except OSError as error:
        raise CertificatesError(f"{error.filename}: {error.strerror}") from None
    except TooOpen as error:
        raise CertificatesError(str(error)) from None
    _prove(files)
    return found


def _prove(files: TlsFiles) -> None:
    """Check that the files fit together, which gRPC would only notice in a handshake. Raises CertificatesError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key with a passphrase is refused. Otherwise OpenSSL would ask for the passphrase on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (ssl.SSLError, OSError, ValueError):
        raise CertificatesError(
            f"{files.certificate} and {files.key} are not a certificate and its key"
        ) from None
    try:
        context.load_verify_locations(files.ca)
    except (ssl.SSLError, OSError):
        raise CertificatesError(f"{files.ca} contains no certificate of a CA") from None
