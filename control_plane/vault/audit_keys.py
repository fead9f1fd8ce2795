"""Signs checkpoints of the audit log, and checks their signatures: Ed25519 (RFC 8032)."""

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from control_plane.domain.secret import Plain


def id_of(public: bytes) -> str:
    """The name of a key: the SHA-256 of its public half, so that nobody can give another key its name."""
    return hashlib.sha256(public).hexdigest()


class AuditSigner:
    """A key that signs checkpoints."""

    def __init__(self, private: Plain) -> None:
        """`private`: 32 bytes."""
        self._private = Ed25519PrivateKey.from_private_bytes(private.reveal)
        self.public = self._private.public_key().public_bytes_raw()
        self.key_id = id_of(self.public)

    def sign(self, text: bytes) -> bytes:
        return self._private.sign(text)


def new_private() -> Plain:
    """The private half of a new key."""
    return Plain(Ed25519PrivateKey.generate().private_bytes_raw())


def is_signed(text: bytes, *, key_id: str, public: bytes, signature: bytes) -> bool:
    """Whether the key with this name signed the text."""
    if id_of(public) != key_id:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
