"""Local key managers, and secrets that were sealed as the API seals them."""

from datetime import timedelta

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from control_plane.db import secrets
from control_plane.db.engine import Database
from control_plane.domain.ids import DataKeyId, OrganizationId, SecretId
from control_plane.domain.secret import KeyContext, Plain, Purpose
from control_plane.vault.sealing.envelope import seal
from control_plane.vault.sealing.local_file import LocalKeyMaker
from control_plane.vault.sealing.port import KeyMaker
from control_plane.vault.unsealing.envelope import unseal
from control_plane.vault.unsealing.local_file import LocalKeyManager
from control_plane.vault.unsealing.port import KeyManager
from control_plane.world import uuid7
from tests.support.clock import Clock

OLD, NEW = (X25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
BEFORE = LocalKeyManager([OLD])
"""The key manager before a rotation of the master key."""
SEALING = LocalKeyMaker(NEW.public_key())
"""What the API has: the public half of the newest key."""
AFTER = LocalKeyManager([OLD, NEW])
"""The one after it, which opens what was sealed before."""


async def store(
    db: Database,
    clock: Clock,
    keys: KeyMaker,
    organization_id: OrganizationId,
    plain: bytes,
    purpose: Purpose = Purpose.PROVIDER_CREDENTIALS,
    *,
    age: timedelta = timedelta(0),
) -> SecretId:
    """Seal a secret and store it, as if that had been some time ago."""
    sealed = await seal(
        keys,
        KeyContext(organization_id, purpose),
        Plain(plain),
        secret_id=SecretId(uuid7()),
        key_id=DataKeyId(uuid7()),
    )
    async with db.transaction(organization_id) as connection:
        await secrets.insert(connection, sealed, now=clock.now() - age)
    return sealed.id


async def read(db: Database, keys: KeyManager, secret_id: SecretId) -> bytes | None:
    """A stored secret, opened; None when there is none any more."""
    async with db.reading() as connection:
        sealed = await secrets.get(connection, secret_id)
    return None if sealed is None else (await unseal(keys, sealed)).reveal
