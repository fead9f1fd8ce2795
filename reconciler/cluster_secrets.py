"""Seals the credentials of clusters for the platform's organization, and opens them."""

from control_plane.db import secrets, ssh_authorities
from control_plane.domain.ids import DataKeyId, SecretId
from control_plane.domain.secret import KeyContext, Plain, Purpose, Sealed
from control_plane.vault.errors import KeyManagerError
from control_plane.vault.sealing.envelope import seal
from control_plane.vault.unsealing.envelope import unseal
from reconciler.worlds.secrets import SecretWorld


async def sealed(world: SecretWorld, plain: str) -> Sealed | None:
    """A credential as it may be stored; None without a key manager, in which case machines are simulated.

    Call it with no transaction open, because it may ask AWS KMS. Raises KeyManagerError.
    """
    if world.keys is None:
        return None
    async with world.db.reading() as connection:
        owner = await ssh_authorities.owner(connection)
        if owner is None:
            raise KeyManagerError(
                "there is no organization of operators, which owns the credentials of clusters"
            )
        master = await secrets.master_of(connection, owner)
    return await seal(
        world.keys,
        KeyContext(owner, Purpose.CLUSTERS),
        Plain(plain.encode()),
        secret_id=SecretId(world.new_id()),
        key_id=DataKeyId(world.new_id()),
        master=master,
    )


async def opened(world: SecretWorld, secret_id: SecretId) -> str:
    """A stored credential. Raises KeyManagerError."""
    async with world.db.reading() as connection:
        found = await secrets.get(connection, secret_id)
    if found is None or world.keys is None:
        raise KeyManagerError("the credential of the cluster was destroyed, or no key manager is configured")
    return (await unseal(world.keys, found)).reveal.decode()
