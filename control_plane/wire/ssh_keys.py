"""SSH public keys of an organization."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from control_plane.wire.common import Name, Request, View


class SshKeyRequest(Request):
    name: Name
    public_key: Annotated[str, Meta(min_length=1, max_length=16_384)]
    """One line of an OpenSSH public key file: `ssh-ed25519 AAAA... you@host`."""


class SshKeyView(View):
    id: str
    name: str
    public_key: str
    fingerprint: str
    created_at: datetime


class SshKeyList(View):
    items: tuple[SshKeyView, ...]
