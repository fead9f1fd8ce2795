"""The life of a key that signs SSH certificates: trusted by machines first, then signing, then only trusted.

    next --> signing --> retired --> removed
       |        |           |            ^
       `--------+-----------+-> distrusted

Machines trust an authority before it signs, and until the last certificate that it signed has ended, so that a rotation
refuses nobody. One that leaked is distrusted: machines are told at once not to trust it, and we keep its key until they
all know, because it alone opens those that do not know yet. At most one authority is next, and at most one signs.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from control_plane.domain.ids import SecretId

TRUSTED_BEFORE = timedelta(minutes=1)
"""So long an authority is trusted at least before it signs. Every process has read it by then."""
TRUSTED_AFTER = timedelta(minutes=15)
"""So long after its last signature machines still trust an authority. Longer than any certificate lasts."""
STRAGGLERS_WAITED_FOR = timedelta(days=1)
"""So long a rotation waits for machines that cannot be reached. Afterwards they may refuse us and their customers."""
HUB_BELIEVED_FOR = timedelta(seconds=20)
"""So long a process believes what it told the hub: another process that was slower, or whoever builds the hub anew, may
have told it something else since. Whatever was under way when the trusted keys changed is over by `TRUSTED_BEFORE`
less this."""


class SshAuthorityState(StrEnum):
    NEXT = "next"
    """Machines learn to trust it. It signs nothing for customers yet."""
    SIGNING = "signing"
    RETIRED = "retired"
    """It signs nothing for customers any more. Machines trust it until the last certificate it signed has ended."""
    DISTRUSTED = "distrusted"
    """It leaked. Machines learn not to trust it; we log in with it to those that have not learnt it."""
    REMOVED = "removed"
    """No machine trusts it, and its private key is deleted."""


TRUSTED = frozenset({SshAuthorityState.NEXT, SshAuthorityState.SIGNING, SshAuthorityState.RETIRED})


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
    """When it stopped signing for customers, retired or distrusted."""
    removed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Due:
    """What has to happen to an authority now."""

    authority: SshAuthority
    state: SshAuthorityState
    """Its new state: SIGNING, and the one that signs now is retired; or REMOVED."""


def due(
    authorities: Collection[SshAuthority], *, machines_behind: bool, hub_behind: bool, now: datetime
) -> Due | None:
    """The next step of a rotation; None while there is none to take.

    `machines_behind`, `hub_behind`: a machine, or the hub, trusts other authorities than it should. A machine that is
    left behind costs its lease; a hub would cost all private networks, so it is waited for as long as it takes.
    """
    if hub_behind:
        return None
    for authority in authorities:
        since = authority.made_at if authority.state is SshAuthorityState.NEXT else authority.retired_at
        if since is None or (machines_behind and now - since < STRAGGLERS_WAITED_FOR):
            continue
        if authority.state is SshAuthorityState.NEXT and now - since >= TRUSTED_BEFORE:
            return Due(authority, SshAuthorityState.SIGNING)
        if authority.state is SshAuthorityState.RETIRED and now - since >= TRUSTED_AFTER:
            return Due(authority, SshAuthorityState.REMOVED)
        if authority.state is SshAuthorityState.DISTRUSTED and now - since >= TRUSTED_BEFORE:
            return Due(authority, SshAuthorityState.REMOVED)
    return None


def fingerprint(trusted: Iterable[str]) -> str:
    """A short text that is the same for the same public keys, in whatever order."""
    return hashlib.sha256("\n".join(sorted(trusted)).encode()).hexdigest()[:16]
