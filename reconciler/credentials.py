"""Opens the sealed settings of provider accounts."""

import json
from collections.abc import Mapping

from control_plane.db import secrets
from control_plane.db.engine import Database
from control_plane.domain.ids import SecretId
from control_plane.vault.unsealing.envelope import unseal
from control_plane.vault.unsealing.port import KeyManager
from providers.registry import AccountOffError


async def settings_of(db: Database, keys: KeyManager | None, secret_id: SecretId) -> Mapping[str, str]:
    """The settings of an account by the names of their fields. Raises KeyManagerError or AccountOffError."""
    async with db.reading() as connection:
        sealed = await secrets.get(connection, secret_id)
    if sealed is None:
        raise AccountOffError("its credentials were destroyed")
    if keys is None:
        raise AccountOffError("no key manager is configured, so its credentials cannot be opened")
    settings: dict[str, str] = json.loads((await unseal(keys, sealed)).reveal)
    return settings
