"""X25519 private keys in a local file, and how one of them unwraps a data key.

The file holds one or more keys in PEM, as `openssl genpkey -algorithm X25519` writes them. The last one is the newest:
append a key to rotate, and remove the old ones when no data key needs them any more.
"""

import re
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control_plane.domain.secret import KeyContext, Plain, WrappedKey
from control_plane.vault.errors import NotOpened
from control_plane.vault.sealing.local_file import FORMAT, NONCE, PUBLIC_BYTES, wrapping_key
from environment.private_files import read_private

_PEM = re.compile(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\s*", re.DOTALL)


def read_private_keys(path: Path) -> list[X25519PrivateKey]:
    """The keys in a file that only its owner may access, at least one.

    Raises ValueError (TooOpen included) or OSError.
    """
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
    return found


def unwrap(private: X25519PrivateKey, key: WrappedKey, context: KeyContext) -> Plain:
    """The plain data key. Raises NotOpened."""
    end = len(FORMAT) + PUBLIC_BYTES
    if key.wrapped[: len(FORMAT)] != FORMAT:
        raise NotOpened(f"the data key {key.id} is not in the format of local keys")
    sent = key.wrapped[len(FORMAT) : end]
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(sent))
        wrapping = wrapping_key(shared, sent, private.public_key(), context)
        return Plain(AESGCM(wrapping).decrypt(NONCE, key.wrapped[end:], context.associated_data()))
    except (InvalidTag, ValueError):
        raise NotOpened(
            f"the data key {key.id} does not open: it was changed, or made for another tenant or purpose"
        ) from None
