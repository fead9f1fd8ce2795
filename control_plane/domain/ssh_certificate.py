"""An SSH certificate of a customer: who asked for it, what it opens, and until when.

    wanted --> signed --> (ends by itself)
       |          |
       |          `-----> revoked
       +--> refused
       `--> revoked

The API stores a request, because it holds no key of an authority. The reconciler signs it. A certificate names one
lease as its principal, so it opens the machine of that lease and no other. It lasts minutes, and no longer than the
credential that it was requested with. What takes away the right to log in revokes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.ids import (
    LeaseId,
    OrganizationId,
    Prefix,
    ProjectId,
    SshCertificateId,
    on_wire,
)
from control_plane.domain.lease import AdmittedKey, LeaseState
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.ssh_public_key import SshPublicKey
from control_plane.domain.subject import Subject

LASTS = timedelta(minutes=10)
"""From its signature to its end. A connection that is open then stays open: sshd looks at a certificate at login."""
BACKDATED = timedelta(minutes=1)
"""A certificate is valid from before its signature, because the clock of a machine may be behind ours."""
WAITS_MAX = timedelta(minutes=2)
"""A request that nobody signed for so long is refused: whoever asked has given up."""
RECENT_MAX = 100
"""Certificates of one lease that are wanted, or signed and not ended or revoked, with those that the same subject
requested within LASTS, whatever became of them: a machine refuses a revoked certificate for as long as it would have
lasted, so revoking makes no room for another one."""


class SshCertificateState(StrEnum):
    WANTED = "wanted"
    """Requested, and not signed yet."""
    SIGNED = "signed"
    REFUSED = "refused"
    """It will not be signed."""
    REVOKED = "revoked"
    """Machines refuse it, and end the sessions that it opened."""
    EXPIRED = "expired"
    """It was signed, and its time is over."""


class SigningRefusal(StrEnum):
    """Why a request was not signed."""

    WAITED_TOO_LONG = "waited_too_long"
    CREDENTIAL_ENDED = "credential_ended"
    """The API key or the session that asked ended meanwhile."""
    KEY_UNUSABLE = "key_unusable"
    """What signs cannot read the SSH key, although we accepted it."""


class Revocation(StrEnum):
    """Why a certificate was revoked."""

    REQUESTED = "requested"
    """Somebody revoked it."""
    LEASE_ENDED = "lease_ended"
    SSH_KEY_DELETED = "ssh_key_deleted"
    """The stored SSH key that it is for was deleted."""
    CREDENTIAL_ENDED = "credential_ended"
    """The API key or the session that asked was revoked, or ended."""
    SUBJECT_ENDED = "subject_ended"
    """The user or the service account was suspended or removed."""
    ROLE_ENDED = "role_ended"
    """No role that is left lets its owner log in to the lease."""
    ORGANIZATION_SUSPENDED = "organization_suspended"
    ORGANIZATION_CLOSED = "organization_closed"


@dataclass(frozen=True, slots=True)
class SshCertificate:
    """A certificate, from the request on."""

    id: SshCertificateId
    organization_id: OrganizationId
    project_id: ProjectId
    lease_id: LeaseId
    serial: int
    """Its number, which no other certificate of the installation ever has: see `serial_of`."""
    public_key: str
    fingerprint: str
    subject: Subject
    """Who asked."""
    credential: str
    """The API key or the session that was used, as an id on the wire."""
    credential_ends_at: datetime | None
    requested_at: datetime
    signed_at: datetime | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None
    certificate: str | None = None
    """One line of OpenSSH's format."""
    refused_at: datetime | None = None
    refused_why: SigningRefusal | None = None
    revoked_at: datetime | None = None
    revoked_why: Revocation | None = None

    @property
    def principal(self) -> str:
        return principal_of(self.lease_id)

    @property
    def key_id(self) -> str:
        """What sshd writes into its log at each login with it: ids alone, because the machine is not ours."""
        return f"{self.subject.on_wire} on {on_wire(Prefix.LEASE, self.lease_id)}"

    def state(self, now: datetime) -> SshCertificateState:
        if self.revoked_at is not None:
            return SshCertificateState.REVOKED
        if self.refused_at is not None:
            return SshCertificateState.REFUSED
        if self.valid_before is None:
            return SshCertificateState.WANTED
        return SshCertificateState.SIGNED if now < self.valid_before else SshCertificateState.EXPIRED


_RANDOM_BITS_OF_ID = 62


def serial_of(certificate_id: SshCertificateId) -> int:
    """The serial of a certificate: the random bits of its id (RFC 9562, version 7), and at least 1.

    A count would be shorter, and would tell each customer how many certificates others get.
    """
    return (certificate_id.int & ((1 << _RANDOM_BITS_OF_ID) - 1)) or 1


def principal_of(lease_id: LeaseId) -> str:
    """The name under which the machine of a lease, and no other, lets its customer in."""
    return on_wire(Prefix.LEASE, lease_id)


@dataclass(frozen=True, slots=True)
class Validity:
    """From when to when a certificate is valid."""

    after: datetime
    before: datetime


def validity(certificate: SshCertificate, now: datetime) -> Validity | SigningRefusal:
    """The times of a certificate that is signed now, or why it is not signed.

    It never outlives the credential that it was requested with.
    """
    if now >= certificate.requested_at + WAITS_MAX:
        return SigningRefusal.WAITED_TOO_LONG
    end = now + LASTS
    if certificate.credential_ends_at is not None:
        end = min(end, certificate.credential_ends_at)
    if end <= now:
        return SigningRefusal.CREDENTIAL_ENDED
    return Validity(now - BACKDATED, end)


@dataclass(frozen=True, slots=True)
class Admission:
    """What a request for a certificate is decided on. Whether the caller may log in at all was decided before."""

    state: LeaseState
    ssh_keys: Sequence[AdmittedKey] | None
    """The keys that the lease was limited to when it was created; None: it admits every key."""
    stored: frozenset[UUID]
    """Those of them that are still stored."""
    recent: int
    """Certificates of the lease that count against RECENT_MAX."""


def refusal(admission: Admission, key: SshPublicKey) -> Refused | None:
    """Why no certificate for this key is requested; None when one is."""
    if admission.state is not LeaseState.READY:
        return Refused(RefusalCode.LEASE_NOT_READY, _NOT_READY[admission.state])
    if not _admits(admission, key.fingerprint):
        return Refused(RefusalCode.SSH_KEY_NOT_ADMITTED, _not_admitted(admission, key))
    if admission.recent >= RECENT_MAX:
        why = (
            f"The lease has {RECENT_MAX} certificates that are not over, or that you requested within the last"
            f" {LASTS // timedelta(minutes=1)} minutes; use one of them, or wait."
        )
        return Refused(RefusalCode.SSH_CERTIFICATES_TOO_MANY, why)
    return None


_COMING = "The lease has no machine to log in to yet; ask again when it is ready."
_OVER = "The lease has ended, and nobody can log in to its machine any more."
_NOT_READY = {
    LeaseState.PLACING: _COMING,
    LeaseState.STARTING: _COMING,
    LeaseState.ENDING: _OVER,
    LeaseState.ENDED: _OVER,
}


def _admits(admission: Admission, fingerprint: str) -> bool:
    if admission.ssh_keys is None:
        return True
    return any(key.fingerprint == fingerprint and key.id in admission.stored for key in admission.ssh_keys)


def _not_admitted(admission: Admission, key: SshPublicKey) -> str:
    if not admission.ssh_keys:
        return "The lease was created with an empty `ssh_key_ids`, so that nobody can log in to its machine."
    names = ", ".join(each.name for each in admission.ssh_keys if each.id in admission.stored)
    return f"The lease was created for certain SSH keys, and {key.fingerprint} is none of them. " + (
        f"Use one of: {names}." if names else "All of them were deleted."
    )
