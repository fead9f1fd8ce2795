"""Makes data keys and wraps them for a public key in a local file: for development, and where there is no KMS.

A data key is wrapped as in ECIES: a fresh X25519 key agrees with the public one on a secret, HKDF-SHA256 makes an
AES-256-GCM key of it, and that key, which is used once, encrypts the data key. Only the private half opens it again.
"""

import hashlib
import os
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from control_plane.domain.secret import KeyContext, MasterKey, Plain
from control_plane.vault.errors import KeyManagerRefused
from control_plane.vault.sealing.port import NewDataKey

FORMAT = b"\x01"
"""The first byte of a wrapped key. After it come the fresh public key, of PUBLIC_BYTES, and the encrypted data key."""
PUBLIC_BYTES = 32
KEY_BYTES = 32
NONCE = bytes(12)
"""Always the same, because each wrapping key encrypts once."""


class LocalKeyMaker:
    def __init__(self, public: X25519PublicKey) -> None:
        self._public = public
        self.master = fingerprint(public)

    async def make_data_key(self, context: KeyContext, master: MasterKey | None = None) -> NewDataKey:
        if master not in (None, self.master):
            raise KeyManagerRefused(
                f"the organization's key {master} needs AWS KMS, and this is a local file"
            )
        plain = Plain(os.urandom(KEY_BYTES))
        return NewDataKey(plain, wrap(self._public, plain, context), self.master)


def read_public(path: Path) -> X25519PublicKey:
    """The public key in a PEM file, as `openssl pkey -pubout` writes it. Raises ValueError or OSError."""
    key = serialization.load_pem_public_key(path.read_bytes())
    if not isinstance(key, X25519PublicKey):
        raise ValueError("it holds no X25519 public key")  # noqa: TRY004 - a wrong file, not a wrong type
    return key


def fingerprint(public: X25519PublicKey) -> MasterKey:
    return MasterKey(f"local:{hashlib.sha256(public.public_bytes_raw()).hexdigest()[:32]}")


def wrap(public: X25519PublicKey, plain: Plain, context: KeyContext) -> Plain:
    """Encrypt a data key for the owner of the private half."""
    fresh = X25519PrivateKey.generate()
    sent = fresh.public_key().public_bytes_raw()
    key = wrapping_key(fresh.exchange(public), sent, public, context)
    return Plain(FORMAT + sent + AESGCM(key).encrypt(NONCE, plain.reveal, context.associated_data()))


def wrapping_key(shared: bytes, sent: bytes, public: X25519PublicKey, context: KeyContext) -> bytes:
    """The key that both sides derive, bound to both public keys and to the context."""
    salt = sent + public.public_bytes_raw()
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=salt, info=context.associated_data()).derive(shared)
