"""Encrypts secrets with AES-256-GCM. Opening them is `control_plane/vault/unsealing/envelope.py`."""

import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control_plane.domain.ids import DataKeyId, SecretId
from control_plane.domain.secret import KeyContext, MasterKey, Plain, Sealed, WrappedKey
from control_plane.vault.sealing.port import KeyMaker, NewDataKey

NONCE_BYTES = 12
"""Random. A data key encrypts so few secrets that no two of its nonces are ever the same (NIST SP 800-38D, 8.3)."""


async def seal(
    keys: KeyMaker,
    context: KeyContext,
    secret: Plain,
    *,
    secret_id: SecretId,
    key_id: DataKeyId,
    master: MasterKey | None = None,
) -> Sealed:
    """Encrypt a secret under a data key of its own. Raises KeyManagerRefused or KeyManagerUnavailable."""
    made = await keys.make_data_key(context, master)
    return seal_under(made, wrapped(made, key_id, context), secret, secret_id=secret_id)


def wrapped(made: NewDataKey, key_id: DataKeyId, context: KeyContext) -> WrappedKey:
    """A new data key, as it is stored."""
    return WrappedKey(key_id, context, made.master, made.wrapped.reveal)


def seal_under(
    made: NewDataKey, key: WrappedKey, secret: Plain, *, secret_id: SecretId, version: int = 1
) -> Sealed:
    """Encrypt a secret under a data key that was just made."""
    nonce = os.urandom(NONCE_BYTES)
    associated = key.context.of_secret(secret_id)
    ciphertext = AESGCM(made.plain.reveal).encrypt(nonce, secret.reveal, associated)
    return Sealed(secret_id, key, nonce, ciphertext, version)
