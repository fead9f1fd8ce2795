"""The life of a key that signs SSH certificates: trusted by machines first, then signing, then only trusted.

    next --> signing --> retired --> removed

Machines trust an authority before it signs, and for a while after it signed its last certificate, so that a rotation
refuses nobody. At any time there is at most one next and one signing authority.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.ids import SecretId

TRUSTED_AFTER = timedelta(minutes=15)
"""So long after its last signature machines still trust an authority. Longer than any certificate lasts."""


class SshAuthorityState(StrEnum):
    NEXT = "next"
    """Machines learn to trust it. It signs nothing yet."""
    SIGNING = "signing"
    RETIRED = "retired"
    """It signs nothing new for customers. Machines trust it until the last certificate that it signed has ended."""
    REMOVED = "removed"
    """No machine trusts it, and its private key is deleted."""


@dataclass(frozen=True, slots=True)
class SshAuthority:
    """What everybody may know of an authority, and where its sealed private key is."""

    id: UUID
    public_key: str
    """One OpenSSH public key line."""
    secret_id: SecretId | None
    """None once it was removed."""
    state: SshAuthorityState
    made_at: datetime
    signs_from: datetime | None
    retired_at: datetime | None
    removed_at: datetime | None
