"""Seals what only the owner of a public key shall read, such as a kubeconfig for the command line that asked for it.

HPKE of RFC 9180 in its base mode: X25519, HKDF-SHA256, AES-256-GCM. The result is the encapsulated key, of 32 bytes,
and the ciphertext. Our command line opens it in `control_plane/cli/kubeconfigs.py`.
"""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from control_plane.domain.secret import Plain
from control_plane.vault.errors import UnusableKey

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def seal_for(public: bytes, secret: Plain, *, purpose: bytes) -> bytes:
    """Encrypt for the owner of an X25519 key. It opens with the same `purpose` only. Raises UnusableKey."""
    try:
        return _SUITE.encrypt(secret.reveal, X25519PublicKey.from_public_bytes(public), info=purpose)
    except ValueError:  # A point of small order, with which every secret would be the same.
        raise UnusableKey("nothing can be sealed for this public key") from None
