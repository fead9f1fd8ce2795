"""Unwraps data keys with private keys in a local file, which may hold several, the newest last."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from control_plane.domain.secret import MasterKey, Plain, WrappedKey
from control_plane.vault.errors import KeyManagerRefused
from control_plane.vault.local_keys import read_private_keys, unwrap
from control_plane.vault.sealing.local_file import LocalKeyMaker, fingerprint, wrap


class LocalKeyManager(LocalKeyMaker):
    def __init__(self, keys: Sequence[X25519PrivateKey]) -> None:
        """The last key is the newest."""
        super().__init__(keys[-1].public_key())
        self._keys = {fingerprint(key.public_key()): key for key in keys}

    async def unwrap(self, key: WrappedKey) -> Plain:
        return unwrap(self._private(key.master), key, key.context)

    async def rewrap(self, key: WrappedKey, master: MasterKey) -> WrappedKey:
        private = self._private(master)
        plain = await self.unwrap(key)
        return replace(key, master=master, wrapped=wrap(private.public_key(), plain, key.context).reveal)

    def _private(self, master: MasterKey) -> X25519PrivateKey:
        private = self._keys.get(master)
        if private is None:
            raise KeyManagerRefused(f"the file with our private keys lacks {master}")
        return private


def read_keys(path: Path) -> LocalKeyManager:
    """The private keys in a file that only its owner may access. Raises ValueError (TooOpen included) or OSError."""
    return LocalKeyManager(read_private_keys(path))
