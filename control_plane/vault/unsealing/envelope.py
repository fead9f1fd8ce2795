"""Opens sealed secrets."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control_plane.domain.secret import Plain, Sealed
from control_plane.vault.errors import NotOpened
from control_plane.vault.unsealing.port import KeyManager


async def unseal(keys: KeyManager, sealed: Sealed) -> Plain:
    """The secret. Raises KeyManagerRefused, KeyManagerUnavailable or NotOpened."""
    return open_with(await keys.unwrap(sealed.key), sealed)


def open_with(data_key: Plain, sealed: Sealed) -> Plain:
    """The secret, with its data key already unwrapped. Raises NotOpened."""
    associated = sealed.key.context.of_secret(sealed.id)
    try:
        return Plain(AESGCM(data_key.reveal).decrypt(sealed.nonce, sealed.ciphertext, associated))
    except InvalidTag:
        raise NotOpened(
            f"the secret {sealed.id} does not open: it was changed, or sealed for another tenant, purpose or row"
        ) from None
