"""Mutual TLS: three files on each side, read again whenever one of them changed.

A certificate is renewed by writing new files; no process is started anew for it. New connections use the
new files, and connections are made anew every ten minutes (`server`), so an old certificate or a CA that is
no longer trusted is gone by then. While certificate and key do not belong together, as in the middle of a
renewal, the last good ones stay.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

log = structlog.get_logger("verifier")


class CertificatesError(ValueError):
    """A file is missing or not usable; the message names it and never shows what is in it."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our certificate with its chain, its key, and the CA that the other side is signed by."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the files hold."""

    certificate: bytes
    key: bytes
    ca: bytes


class CertificateFiles:
    """The files as they were last found good. Raises CertificatesError if they are not at the start."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = _stamps(files)
        self.current = _read(files)

    def changed(self) -> bool:
        """Look again: whether `current` is another than before."""
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
    """A client without a certificate of the CA is refused. The files are looked at for every connection."""

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


def _stamps(files: TlsFiles) -> tuple[tuple[int, int, int], ...]:
    """What changes when a file does, or another is put in its place."""
    stamps = []
    for path in (files.certificate, files.key, files.ca):
        try:
            status = path.stat()
        except OSError as error:
            raise CertificatesError(f"{path}: {error.strerror}") from None
        stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def _read(files: TlsFiles) -> Certificates:
    try:
        found = Certificates(files.certificate.read_bytes(), files.key.read_bytes(), files.ca.read_bytes())
    except OSError as error:
        raise CertificatesError(f"{error.filename}: {error.strerror}") from None
    _prove(files)
    return found


def _prove(files: TlsFiles) -> None:
    """Whether they fit together; gRPC would only find out in a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key under a passphrase is refused; without this, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (ssl.SSLError, OSError, ValueError):
        raise CertificatesError(
            f"{files.certificate} and {files.key} are not a certificate and its key"
        ) from None
    try:
        context.load_verify_locations(files.ca)
    except (ssl.SSLError, OSError):
        raise CertificatesError(f"{files.ca} holds no certificate of a CA") from None
