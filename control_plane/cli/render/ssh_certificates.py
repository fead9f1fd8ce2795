"""SSH certificates on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.names import Names
from control_plane.cli.render.layout import facts, table
from control_plane.cli.words import ago, both, spaced
from control_plane.wire.ssh_certificates import SshCertificateView


def ssh_certificate_page(certificate: SshCertificateView, file: str, now: datetime) -> RenderableType:
    """One certificate, and the file that it was written to."""
    return Group(
        Text(file),
        Text(),
        facts(
            ("Certificate", certificate.id),
            ("Serial", certificate.serial),
            ("Lease", certificate.lease_id),
            ("SSH key", certificate.fingerprint),
            ("Valid until", both(certificate.valid_before, now)),
        ),
    )


def ssh_certificate_table(
    certificates: Sequence[SshCertificateView], names: Names, now: datetime
) -> RenderableType:
    if not certificates:
        return Text("No certificates: nobody has logged in to this lease, or is about to.")
    rows = [
        (
            certificate.id,
            names.subject(certificate.subject) or certificate.subject,
            ago(certificate.requested_at, now),
            _state(certificate),
        )
        for certificate in certificates
    ]
    return table(("CERTIFICATE", "WHO", "REQUESTED", "STATE"), rows, whole=("CERTIFICATE",))


def _state(certificate: SshCertificateView) -> str:
    why = certificate.revoked_why or certificate.refused_why
    return certificate.state if why is None else f"{certificate.state}: {spaced(why)}"
