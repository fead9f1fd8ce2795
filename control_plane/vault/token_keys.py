"""Seals and opens the private keys of access tokens, and nothing else.

It is the one purpose that the API process opens, because it has to sign. The context of the data key is fixed here, and
the policy of AWS KMS permits the API to decrypt with this context alone. With a local file the key is one of its own,
which wraps no other secret.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control_plane.domain.ids import DataKeyId, OrganizationId
from control_plane.domain.secret import KeyContext, MasterKey, Plain, Purpose, WrappedKey
from control_plane.vault.errors import KeyManagerRefused, NotOpened
from control_plane.vault.local_keys import read_private_keys, unwrap
from control_plane.vault.sealing.envelope import NONCE_BYTES
from control_plane.vault.sealing.local_file import LocalKeyMaker, fingerprint
from control_plane.vault.sealing.port import NewDataKey

CONTEXT = KeyContext(OrganizationId(UUID(int=0)), Purpose.TOKEN_SIGNING)
"""The keys sign the tokens of every organization, so they belong to none."""


class TokenKeyManager(Protocol):
    @property
    def master(self) -> MasterKey:
        """The newest master key, which keys are sealed under."""
        ...

    async def make_data_key(self, context: KeyContext, master: MasterKey | None = None) -> NewDataKey: ...

    async def unwrap(self, key: WrappedKey) -> Plain:
        """Raises KeyManagerError."""
        ...


class LocalTokenKeys(LocalKeyMaker):
    """A data key is wrapped as for other secrets, for the newest X25519 key in a file of the API's own."""

    def __init__(self, keys: Sequence[X25519PrivateKey]) -> None:
        """The last key is the newest. The others open what was sealed before a rotation."""
        super().__init__(keys[-1].public_key())
        self._keys = {fingerprint(key.public_key()): key for key in keys}

    async def unwrap(self, key: WrappedKey) -> Plain:
        private = self._keys.get(key.master)
        if private is None:
            raise KeyManagerRefused(f"the file with the keys of the tokens' keys lacks {key.master}")
        return unwrap(private, key, CONTEXT)


def read_token_keys(path: Path) -> LocalTokenKeys:
    """The private keys in a file that only its owner may access. Raises ValueError (TooOpen included) or OSError."""
    return LocalTokenKeys(read_private_keys(path))


class SealedKey(Protocol):
    """The sealed private half of a signing key, as it is stored."""

    @property
    def id(self) -> str: ...
    @property
    def master(self) -> MasterKey: ...
    @property
    def wrapped(self) -> bytes: ...
    @property
    def nonce(self) -> bytes: ...
    @property
    def ciphertext(self) -> bytes: ...


def _associated(key_id: str) -> bytes:
    return CONTEXT.associated_data() + b"/" + key_id.encode()


async def seal(manager: TokenKeyManager, key_id: str, private: Plain) -> tuple[NewDataKey, bytes, bytes]:
    """The data key, nonce and ciphertext of a private key. Raises KeyManagerError."""
    made = await manager.make_data_key(CONTEXT)
    nonce = os.urandom(NONCE_BYTES)
    return made, nonce, AESGCM(made.plain.reveal).encrypt(nonce, private.reveal, _associated(key_id))


async def unseal(manager: TokenKeyManager, sealed: SealedKey) -> Plain:
    """The private key. Raises KeyManagerError."""
    data_key = await manager.unwrap(
        WrappedKey(DataKeyId(UUID(int=0)), CONTEXT, sealed.master, sealed.wrapped)
    )
    try:
        opened = AESGCM(data_key.reveal).decrypt(sealed.nonce, sealed.ciphertext, _associated(sealed.id))
    except InvalidTag:
        raise NotOpened(
            f"the signing key {sealed.id} does not open: it was changed, or sealed elsewhere"
        ) from None
    return Plain(opened)
