"""Seals secrets for the API, which can read none of them afterwards."""

from control_plane.db import secrets
from control_plane.domain.ids import DataKeyId, OrganizationId, SecretId
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.secret import KeyContext, Plain, Purpose, Sealed
from control_plane.settings import Settings, SettingsError
from control_plane.vault.errors import KeyManagerRefused, KeyManagerUnavailable
from control_plane.vault.sealing.envelope import seal as seal_with
from control_plane.vault.sealing.local_file import LocalKeyMaker, read_public
from control_plane.vault.sealing.port import KeyMaker
from control_plane.world import World


def key_maker(settings: Settings) -> KeyMaker | None:
    """What makes the data keys; None when nothing is configured. Raises SettingsError."""
    if settings.kms_key is not None:
        if settings.sealing_key is not None:
            raise SettingsError("set SPLITPLANE_KMS_KEY or SPLITPLANE_SEALING_KEY_PATH, not both")
        from control_plane.vault.sealing.aws_kms import (  # noqa: PLC0415 - boto3 loads only where it is used
            KmsKeyMaker,
        )

        return KmsKeyMaker(settings.kms_key)
    if settings.sealing_key is None:
        return None
    try:
        return LocalKeyMaker(read_public(settings.sealing_key))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"SPLITPLANE_SEALING_KEY_PATH is {str(settings.sealing_key)!r}: {why}") from error


async def seal(
    world: World, organization_id: OrganizationId, purpose: Purpose, secret: Plain
) -> Sealed | Refused:
    """Encrypt a secret. Call it with no transaction open, because it may ask AWS KMS; store what it returns."""
    if world.sealing is None:
        return Refused(
            RefusalCode.SECRETS_NOT_CONFIGURED,
            "This installation has no key manager, so it stores no secrets. Its operator sets SPLITPLANE_KMS_KEY or"
            " SPLITPLANE_SEALING_KEY_PATH.",
        )
    async with world.db.reading(organization_id) as connection:
        master = await secrets.master_of(connection, organization_id)
    try:
        return await seal_with(
            world.sealing,
            KeyContext(organization_id, purpose),
            secret,
            secret_id=SecretId(world.new_id()),
            key_id=DataKeyId(world.new_id()),
            master=master,
        )
    except KeyManagerRefused as error:
        return Refused(RefusalCode.KEY_MANAGER_REFUSED, f"The key manager made no data key: {error}.")
    except KeyManagerUnavailable:
        return Refused(
            RefusalCode.KEY_MANAGER_UNAVAILABLE, "The key manager does not answer. Try again in a minute."
        )
