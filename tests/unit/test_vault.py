"""What is sealed opens only with its key, in its place; the public half seals and opens nothing."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from control_plane.domain.ids import DataKeyId, OrganizationId, SecretId
from control_plane.domain.secret import KeyContext, MasterKey, Plain, Purpose, Sealed, WrappedKey
from control_plane.vault import token_keys
from control_plane.vault.errors import KeyManagerRefused, NotOpened
from control_plane.vault.sealing.envelope import seal
from control_plane.vault.sealing.local_file import LocalKeyMaker, read_public
from control_plane.vault.unsealing.envelope import unseal
from control_plane.vault.unsealing.local_file import read_keys
from environment.private_files import TooOpen
from tests.support.keys import AFTER, BEFORE, NEW, OLD

ACME, OTHER = OrganizationId(UUID(int=1)), OrganizationId(UUID(int=2))
CONTEXT = KeyContext(ACME, Purpose.PROVIDER_CREDENTIALS)
PUBLIC = LocalKeyMaker(OLD.public_key())


async def _sealed(keys: LocalKeyMaker = PUBLIC) -> Sealed:
    ids = SecretId(UUID(int=3)), DataKeyId(UUID(int=4))
    return await seal(keys, CONTEXT, Plain(b"top secret"), secret_id=ids[0], key_id=ids[1])


async def test_what_the_public_half_sealed_the_private_half_opens() -> None:
    sealed = await _sealed()
    assert b"top secret" not in sealed.ciphertext
    assert (await unseal(BEFORE, sealed)).reveal == b"top secret"


async def test_a_row_that_was_moved_to_another_tenant_purpose_or_row_does_not_open() -> None:
    sealed = await _sealed()
    moved = [
        replace(sealed, id=SecretId(UUID(int=9))),
        replace(sealed, key=replace(sealed.key, context=KeyContext(OTHER, CONTEXT.purpose))),
        replace(sealed, key=replace(sealed.key, context=KeyContext(ACME, Purpose.SSH_AUTHORITY))),
    ]
    for case in moved:
        with pytest.raises(NotOpened):
            await unseal(BEFORE, case)


async def test_the_context_binds_the_secret_even_where_its_data_key_is_known() -> None:
    """A key manager that forgot to check the context would still not open a secret for another tenant."""
    sealed = await _sealed()
    data_key = await BEFORE.unwrap(sealed.key)

    class Forgetful(type(BEFORE)):  # type: ignore[misc] # whatever class it has
        async def unwrap(self, key: object) -> Plain:
            return data_key

    with pytest.raises(NotOpened):
        await unseal(
            Forgetful([OLD]),
            replace(sealed, key=replace(sealed.key, context=KeyContext(OTHER, CONTEXT.purpose))),
        )


async def test_a_changed_byte_anywhere_is_noticed() -> None:
    sealed = await _sealed()
    for index in range(len(sealed.key.wrapped)):
        changed = bytearray(sealed.key.wrapped)
        changed[index] ^= 1
        with pytest.raises(NotOpened):
            await unseal(BEFORE, replace(sealed, key=replace(sealed.key, wrapped=bytes(changed))))
    first, *rest = sealed.nonce
    with pytest.raises(NotOpened):
        await unseal(BEFORE, replace(sealed, nonce=bytes([first ^ 1, *rest])))
    first, *rest = sealed.ciphertext
    with pytest.raises(NotOpened):
        await unseal(BEFORE, replace(sealed, ciphertext=bytes([first ^ 1, *rest])))
    with pytest.raises(NotOpened):
        await unseal(BEFORE, replace(sealed, key=replace(sealed.key, wrapped=sealed.key.wrapped[:20])))


async def test_two_seals_of_one_secret_have_nothing_in_common() -> None:
    one, two = await _sealed(), await _sealed()
    assert one.nonce != two.nonce
    assert one.ciphertext != two.ciphertext
    assert one.key.wrapped[:33] != two.key.wrapped[:33]


async def test_a_data_key_that_is_wrapped_anew_opens_the_same_secret_under_the_new_master_key_only() -> None:
    sealed = await _sealed()
    moved = replace(sealed, key=await AFTER.rewrap(sealed.key, AFTER.master))
    assert moved.key.master != sealed.key.master
    assert (await unseal(AFTER, moved)).reveal == b"top secret"
    with pytest.raises(KeyManagerRefused):
        await unseal(BEFORE, moved)


async def test_a_customers_own_master_key_is_refused_by_local_files() -> None:
    for asked in (
        PUBLIC.make_data_key(CONTEXT, MasterKey("arn:aws:kms:eu-central-1:123456789012:key/1")),
        AFTER.rewrap((await _sealed()).key, MasterKey("arn:aws:kms:eu-central-1:123456789012:key/1")),
    ):
        with pytest.raises(KeyManagerRefused):
            await asked


def _private(key: X25519PrivateKey | Ed25519PrivateKey, password: bytes | None = None) -> bytes:
    protection: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)


def _written(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


async def test_the_last_key_of_a_file_is_the_newest_and_the_others_still_open(tmp_path: Path) -> None:
    keys = read_keys(_written(tmp_path / "keys.pem", _private(OLD) + b"\n" + _private(NEW)))
    assert keys.master == AFTER.master
    assert (await unseal(keys, await _sealed())).reveal == b"top secret"
    public = NEW.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    sealing = LocalKeyMaker(read_public(_written(tmp_path / "public.pem", public, 0o644)))
    assert sealing.master == AFTER.master
    assert (await unseal(keys, await _sealed(sealing))).reveal == b"top secret"


async def test_keys_of_tokens_are_sealed_with_the_last_key_of_their_file_and_opened_with_any(
    tmp_path: Path,
) -> None:
    old, new, both = (
        token_keys.read_token_keys(_written(tmp_path / f"{number}.pem", content))
        for number, content in enumerate((_private(OLD), _private(NEW), _private(OLD) + _private(NEW)))
    )
    assert both.master == new.master
    for maker in (old, both):
        made = await maker.make_data_key(token_keys.CONTEXT)
        key_id = DataKeyId(UUID(int=4))
        wrapped = WrappedKey(key_id, token_keys.CONTEXT, made.master, made.wrapped.reveal)
        assert (await both.unwrap(wrapped)).reveal == made.plain.reveal
        with pytest.raises(KeyManagerRefused, match="lacks"):
            await (new if maker is old else old).unwrap(wrapped)


def test_a_file_of_private_keys_is_refused_when_it_is_open_to_others_or_holds_something_else(
    tmp_path: Path,
) -> None:
    with pytest.raises(TooOpen):
        read_keys(_written(tmp_path / "open.pem", _private(OLD), 0o640))
    foreign = _private(Ed25519PrivateKey.generate())
    for name, content in {
        "empty": b"",
        "no pem": b"hello",
        "another kind": foreign,
        "protected": _private(OLD, b"password"),
        "broken": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    }.items():
        with pytest.raises(ValueError, match=r"."):
            read_keys(_written(tmp_path / "keys.pem", content))
        with pytest.raises(ValueError, match=r"."):
            read_public(_written(tmp_path / "public.pem", content))
        assert name
