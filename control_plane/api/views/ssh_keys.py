"""SSH keys on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.ssh_keys import SshKey
from control_plane.wire.ssh_keys import SshKeyView


def ssh_key_view(key: SshKey) -> SshKeyView:
    return SshKeyView(
        id=on_wire(Prefix.SSH_KEY, key.id),
        name=key.name,
        public_key=key.public_key,
        fingerprint=key.fingerprint,
        project_id=None if key.project_id is None else on_wire(Prefix.PROJECT, key.project_id),
        created_at=key.created_at,
    )
