"""Seals and opens the private keys of access tokens, and nothing else.

It is the one purpose that the API process opens, because it has to sign. The context of the data key is fixed here, and
the policy of AWS KMS permits the API to decrypt with this context alone. With a local file the key is one of its own,
which wraps no other secret.
"""

import os
from pathlib import Path
from typing import Protocol
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control_plane.domain.ids import DataKeyId, OrganizationId
from control_plane.domain.secret import KeyContext, MasterKey, Plain, Purpose, WrappedKey
from control_plane.vault.errors import KeyManagerRefused, NotOpened
from control_plane.vault.sealing.envelope import NONCE_BYTES
from control_plane.vault.sealing.local_file import FORMAT, NONCE, PUBLIC_BYTES, LocalKeyMaker, wrapping_key
from control_plane.vault.sealing.port import NewDataKey
from environment.private_files import read_private

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
    """A data key is wrapped as for other secrets, for an X25519 key in a file of the API's own."""

    def __init__(self, private: X25519PrivateKey) -> None:
        super().__init__(private.public_key())
        self._private = private

    async def unwrap(self, key: WrappedKey) -> Plain:
        end = len(FORMAT) + PUBLIC_BYTES
        if key.master != self.master:
            raise KeyManagerRefused(f"the file with the key of the tokens' keys lacks {key.master}")
        if key.wrapped[: len(FORMAT)] != FORMAT:
            raise NotOpened(f"the data key {key.id} is not in the format of local keys")
        sent = key.wrapped[len(FORMAT) : end]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(sent))
            wrapping = wrapping_key(shared, sent, self._private.public_key(), CONTEXT)
            opened = AESGCM(wrapping).decrypt(NONCE, key.wrapped[end:], CONTEXT.associated_data())
        except (InvalidTag, ValueError):
            raise NotOpened(f"the data key {key.id} does not open") from None
        return Plain(opened)


def read_token_key(path: Path) -> LocalTokenKeys:
    """The X25519 private key in a PEM file that only its owner may access. Raises ValueError or OSError."""
    try:
        key = serialization.load_pem_private_key(read_private(path), password=None)
    except TypeError:
        raise ValueError("its key is protected by a password") from None
    if not isinstance(key, X25519PrivateKey):
        raise ValueError("it holds no X25519 private key")  # noqa: TRY004 - a wrong file, not a wrong type
    return LocalTokenKeys(key)


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
