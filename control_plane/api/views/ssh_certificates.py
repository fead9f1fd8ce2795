"""SSH certificates on the wire."""

from datetime import datetime

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.ssh_certificates import SshCertificate
from control_plane.wire.ssh_certificates import SshCertificateView


def ssh_certificate_view(certificate: SshCertificate, now: datetime) -> SshCertificateView:
    return SshCertificateView(
        id=on_wire(Prefix.SSH_CERTIFICATE, certificate.id),
        lease_id=on_wire(Prefix.LEASE, certificate.lease_id),
        state=certificate.state(now),
        certificate=certificate.certificate,
        valid_after=certificate.valid_after,
        valid_before=certificate.valid_before,
        serial=str(certificate.serial),
        fingerprint=certificate.fingerprint,
        subject=certificate.subject.on_wire,
        credential=certificate.credential,
        requested_at=certificate.requested_at,
        signed_at=certificate.signed_at,
        refused_why=certificate.refused_why,
        revoked_at=certificate.revoked_at,
        revoked_why=certificate.revoked_why,
    )
