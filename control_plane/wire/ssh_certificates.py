"""SSH certificates: what opens the machine of a lease, for minutes."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import NextCursor, Request, Timestamp, View
from control_plane.wire.ssh_keys import PublicKeyText
from control_plane.wire.vocabulary import LeaseIdText, SshCertificateIdText, SubjectIdText, one_of

SshCertificateStateWord = Annotated[
    str,
    one_of(
        "SshCertificateState",
        "Where a certificate is.",
        wanted="It was requested, and is signed in a moment.",
        signed="It is valid.",
        refused="It was not signed; `refused_why` tells why.",
        revoked="Machines refuse it, and end the sessions that it opened.",
        expired="Its time is over. Sessions that it opened may go on.",
    ),
]
SigningRefusalWord = Annotated[
    str,
    one_of(
        "SigningRefusal",
        "Why a certificate was not signed.",
        waited_too_long="Nothing could sign it for two minutes. Request another one.",
        credential_ended="The API key or the session that asked for it ended meanwhile.",
        key_unusable="The SSH key cannot be signed. Use another one.",
    ),
]
RevocationWord = Annotated[
    str,
    one_of(
        "Revocation",
        "Why a certificate was revoked.",
        requested="Somebody revoked it.",
        lease_ended="The lease ended.",
        ssh_key_deleted="The stored SSH key that it is for was deleted.",
        credential_ended="The API key or the session that asked for it was revoked, or ended.",
        subject_ended="The user or the service account was suspended or removed.",
        role_ended="No role that is left lets its owner log in to the lease.",
        organization_suspended="The organization was suspended.",
        organization_closed="The organization was closed.",
    ),
]
CertificateLine = Annotated[
    str,
    Meta(
        description="One line of OpenSSH's format, for a file that ends in `-cert.pub`.",
        examples=[
            "ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29tAAAAIA..."
        ],
    ),
]


class SshCertificateRequest(Request):
    """The SSH key that the certificate is for."""

    key: PublicKeyText
    """One line of an OpenSSH public key file, such as `~/.ssh/id_ed25519.pub`, which is not stored among your SSH keys;
    or the id of a stored SSH key of the organization or of the lease's project."""


class SshCertificateView(View):
    """An SSH certificate of a lease, from its request on."""

    id: SshCertificateIdText
    """The id of the certificate."""
    lease_id: LeaseIdText
    """The lease whose machine it opens."""
    state: SshCertificateStateWord
    """Where it is. A new one is `wanted`; ask for it again until it is not."""
    certificate: CertificateLine | None
    """The certificate; null until it is signed. Without the private key it opens nothing."""
    valid_after: Timestamp | None
    """From when it is valid: a minute before it was signed, as a machine's clock may be behind. Null until it is
    signed."""
    valid_before: Timestamp | None
    """Until when one can log in with it: ten minutes, or until the API key or the session that asked for it ends. Null
    until it is signed."""
    serial: Annotated[
        str, Meta(examples=["2039871204471902113"], extra_json_schema={"pattern": "^[0-9]{1,19}$"})
    ]
    """Its number, in decimal digits as sshd writes it into its log on the machine. No other certificate ever has it."""
    fingerprint: str
    """The fingerprint of its SSH key, as `ssh-keygen -l` prints it."""
    subject: SubjectIdText
    """Who requested it."""
    credential: Annotated[
        str,
        Meta(
            description="The id of an API key or of a session.",
            examples=["key_0190c2f07d1e7b3a9c54e1f2a3b4c5d6"],
            extra_json_schema={"pattern": "^(key|ses)_[0-9a-f]{32}$"},
        ),
    ]
    """The API key or the session with which it was requested."""
    requested_at: Timestamp
    """When it was requested."""
    signed_at: Timestamp | None
    """When it was signed; null before that."""
    refused_why: SigningRefusalWord | None
    """Why it was not signed; null unless it was refused."""
    revoked_at: Timestamp | None
    """When it was revoked; null unless it was."""
    revoked_why: RevocationWord | None
    """Why it was revoked; null unless it was."""


class SshCertificatePage(View):
    """A page of SSH certificates."""

    items: tuple[SshCertificateView, ...]
    """The certificates, newest first. They are listed for 30 days."""
    next_cursor: NextCursor | None = None
