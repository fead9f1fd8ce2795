"""SSH public keys of an organization."""

from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Name, NextCursor, Request, Timestamp, View
from control_plane.wire.vocabulary import ProjectIdText, StoredKeyIdText

_EXAMPLE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl you@host"
PublicKeyText = Annotated[str, Meta(min_length=1, max_length=8_192, examples=[_EXAMPLE])]


class SshKeyRequest(Request):
    """An SSH public key to be stored."""

    name: Name
    """The name of the key, for people."""
    public_key: PublicKeyText
    """One line of an OpenSSH public key file: `ssh-ed25519 AAAA... you@host`. Types: `ssh-ed25519`,
    `ecdsa-sha2-nistp256`, `-nistp384`, `-nistp521`, the two `sk-` types of security tokens, and `ssh-rsa` of 2,048 to
    16,384 bits. No options."""
    project: Annotated[Name, Meta(examples=["default"])] | None = None
    """The name or the id of the project whose leases it is for; all of the organization's when it is left out."""


class SshKeyView(View):
    """An SSH public key."""

    id: StoredKeyIdText
    """The id of the key."""
    name: str
    """The name of the key, for people."""
    public_key: str
    """The key, as a line of an OpenSSH public key file."""
    fingerprint: str
    """Its fingerprint, as `ssh-keygen -l` prints it."""
    project_id: ProjectIdText | None
    """The project whose leases it is for; null: all of the organization's."""
    created_at: Timestamp
    """When it was stored."""


class SshKeyList(View):
    """All SSH keys of an organization."""

    items: tuple[SshKeyView, ...]
    """The keys, oldest first."""
    next_cursor: NextCursor | None = None
