"""Builds the key manager of the reconciler from its settings."""

import structlog

from control_plane.vault.unsealing.local_file import read_keys
from control_plane.vault.unsealing.port import KeyManager
from reconciler.settings import KeySettings, SettingsError

log = structlog.get_logger()


def key_manager(chosen: KeySettings) -> KeyManager | None:
    """The key manager; None when none is configured. Raises SettingsError."""
    if chosen.kms_key is not None:
        if chosen.unsealing_keys is not None:
            raise SettingsError("set SPLITPLANE_KMS_KEY or SPLITPLANE_UNSEALING_KEYS_PATH, not both")
        from control_plane.vault.unsealing.aws_kms import (  # noqa: PLC0415 - boto3 loads only where it is used
            KmsKeyManager,
        )

        return KmsKeyManager(chosen.kms_key)
    if chosen.unsealing_keys is None:
        log.warning("secrets_off", why="neither SPLITPLANE_KMS_KEY nor SPLITPLANE_UNSEALING_KEYS_PATH is set")
        return None
    try:
        return read_keys(chosen.unsealing_keys)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(
            f"SPLITPLANE_UNSEALING_KEYS_PATH is {str(chosen.unsealing_keys)!r}: {why}"
        ) from error
