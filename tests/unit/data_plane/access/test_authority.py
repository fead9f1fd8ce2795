"""What an authority signs says exactly what was asked for, and never lasts long.

The certificates are read by another library than the one that made them.
"""

from datetime import UTC, datetime, timedelta

import asyncssh
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate, SSHCertificateType

from data_plane.access.authority import CERTIFICATE_LASTS_MAX, SERIAL_MAX, Authority, new_authority

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
AUTHORITY = new_authority()


def _public(algorithm: str = "ssh-ed25519") -> str:
    return asyncssh.generate_private_key(algorithm).export_public_key().decode()


def _sign(
    public_key: str,
    *,
    serial: int = 7,
    principals: tuple[str, ...] = ("le_2",),
    lasts: timedelta = timedelta(minutes=5),
    interactive: bool = True,
) -> str:
    return AUTHORITY.sign(
        public_key,
        serial=serial,
        key_id="user_1 on le_2",
        principals=principals,
        valid_after=NOW,
        valid_before=NOW + lasts,
        interactive=interactive,
    )


def _read(line: str) -> SSHCertificate:
    found = serialization.load_ssh_public_identity(line.encode())
    assert isinstance(found, SSHCertificate)
    return found


def test_a_certificate_says_who_may_log_in_as_whom_and_until_when() -> None:
    for algorithm in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"):
        subject = _public(algorithm)
        line = _sign(f"{subject.strip()} somebody@laptop")
        assert "\n" not in line
        assert len(line.split()) == 2, "the comment of the key is nobody's business"
        certificate = _read(line)
        certificate.verify_cert_signature()
        assert certificate.type is SSHCertificateType.USER
        assert (certificate.serial, certificate.key_id) == (7, b"user_1 on le_2")
        assert certificate.valid_principals == [b"le_2"]
        assert certificate.valid_after == NOW.timestamp()
        assert certificate.valid_before == (NOW + timedelta(minutes=5)).timestamp()
        assert certificate.critical_options == {}
        signer = certificate.signature_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        assert signer.decode() == AUTHORITY.public_key


def test_only_an_interactive_certificate_permits_more_than_to_run_commands() -> None:
    permits = {b"permit-pty": b"", b"permit-port-forwarding": b"", b"permit-agent-forwarding": b""}
    for interactive, extensions in ((True, permits), (False, {})):
        certificate = _read(_sign(_public(), interactive=interactive))
        assert certificate.extensions == extensions, interactive


def test_what_would_be_dangerous_is_not_signed() -> None:
    subject = _public()
    with pytest.raises(ValueError, match="principal"):
        _sign(subject, principals=())
    _sign(subject, lasts=CERTIFICATE_LASTS_MAX)
    for lasts in (timedelta(0), timedelta(seconds=-1), CERTIFICATE_LASTS_MAX + timedelta(seconds=1)):
        with pytest.raises(ValueError, match="lasts"):
            _sign(subject, lasts=lasts)
    for serial in (0, -1, SERIAL_MAX + 1):  # OpenSSH revokes no certificate with the serial 0.
        with pytest.raises(ValueError, match="serial"):
            _sign(subject, serial=serial)
    for malformed in ("", "ssh-ed25519", "ssh-ed25519 AAAA", _sign(subject)):
        with pytest.raises(ValueError, match="public key"):
            _sign(malformed)


def test_an_authority_is_the_same_after_it_was_stored_and_never_shows_its_private_key() -> None:
    private = AUTHORITY.private_openssh()
    assert Authority(private).public_key == AUTHORITY.public_key
    assert repr(AUTHORITY) == f"Authority(public_key={AUTHORITY.public_key!r})"
    assert new_authority().public_key != AUTHORITY.public_key
    with pytest.raises(ValueError, match="private key"):
        Authority(AUTHORITY.public_key)
