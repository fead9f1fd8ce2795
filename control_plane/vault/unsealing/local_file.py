"""Unwraps data keys with private keys in a local file.

The file holds one or more X25519 private keys in PEM, as `openssl genpkey -algorithm X25519` writes them. The last one
is the newest: append a key to rotate, and remove the old ones when no data key needs them any more.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control_plane.domain.secret import MasterKey, Plain, WrappedKey
from control_plane.vault.errors import KeyManagerRefused, NotOpened
from control_plane.vault.sealing.local_file import (
    FORMAT,
    NONCE,
    PUBLIC_BYTES,
    LocalKeyMaker,
    fingerprint,
    wrap,
    wrapping_key,
)
from environment.private_files import read_private

_PEM = re.compile(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\s*", re.DOTALL)


class LocalKeyManager(LocalKeyMaker):
    def __init__(self, keys: Sequence[X25519PrivateKey]) -> None:
        """The last key is the newest."""
        super().__init__(keys[-1].public_key())
        self._keys = {fingerprint(key.public_key()): key for key in keys}

    async def unwrap(self, key: WrappedKey) -> Plain:
        private = self._keys.get(key.master)
        if private is None:
            raise KeyManagerRefused(f"the file with our private keys lacks {key.master}")
        end = len(FORMAT) + PUBLIC_BYTES
        if key.wrapped[: len(FORMAT)] != FORMAT:
            raise NotOpened(f"the data key {key.id} is not in the format of local keys")
        try:
            sent = key.wrapped[len(FORMAT) : end]
            shared = private.exchange(X25519PublicKey.from_public_bytes(sent))
            wrapping = wrapping_key(shared, sent, private.public_key(), key.context)
            opened = AESGCM(wrapping).decrypt(NONCE, key.wrapped[end:], key.context.associated_data())
        except (InvalidTag, ValueError):
            raise NotOpened(
                f"the data key {key.id} does not open: it was changed, or made for another tenant or purpose"
            ) from None
        return Plain(opened)

    async def rewrap(self, key: WrappedKey, master: MasterKey) -> WrappedKey:
        private = self._keys.get(master)
        if private is None:
            raise KeyManagerRefused(f"the file with our private keys lacks {master}")
        plain = await self.unwrap(key)
        return replace(key, master=master, wrapped=wrap(private.public_key(), plain, key.context).reveal)


def read_keys(path: Path) -> LocalKeyManager:
    """The private keys in a file that only its owner may access. Raises ValueError (TooOpen included) or OSError."""
    found = []
    for pem in _PEM.findall(read_private(path)):
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except TypeError:
            raise ValueError("one of its keys is protected by a password") from None
        if not isinstance(key, X25519PrivateKey):
            raise ValueError("it holds a key that is no X25519 private key")  # noqa: TRY004 - a wrong file
        found.append(key)
    if not found:
        raise ValueError("it holds no private key in PEM")
    return LocalKeyManager(found)
