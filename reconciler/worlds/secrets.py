"""The world of loops that open sealed secrets."""

from dataclasses import dataclass
from datetime import timedelta

from control_plane.vault.unsealing.port import KeyManager
from reconciler.world import World

DATA_KEYS_LAST = timedelta(days=90)


@dataclass(frozen=True, kw_only=True)
class SecretWorld(World):
    keys: KeyManager | None = None
    """None when no key manager is configured: then no secret can be stored, and none opened."""
    data_keys_last: timedelta = DATA_KEYS_LAST
    """After this time the secrets of a data key are encrypted anew under another one."""
