"""SSH keys on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from control_plane.cli.render.layout import table
from control_plane.cli.words import coarse
from control_plane.wire.ssh_keys import SshKeyView


def ssh_key_table(keys: Sequence[SshKeyView], now: datetime) -> RenderableType:
    if not keys:
        return Text("No SSH keys; add one with: splitplane ssh-key add NAME ~/.ssh/id_ed25519.pub")
    rows = [(key.name, key.fingerprint, coarse(now - key.created_at)) for key in keys]
    return table(("NAME", "FINGERPRINT", "AGE"), rows, right=("AGE",))
